// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Where the database takes nothing more, reading the reports of a registry ends with why.
func TestStoredReportsEndWithTheDatabase(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newShelf(t)
	do := func(args ...string) {
		t.Helper()
		if out, err := s.run(args...); err != nil {
			t.Fatal(args, err, out)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do("keys", "generate", "keys/operator")
	site := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\ntrust: {keys: {operator: keys/operator.pub}}\nnodes:\n"
	const many = 40
	for i := range many {
		site += fmt.Sprintf("  - {name: n%d}\n", i)
	}
	must(os.WriteFile("site.yaml", []byte(site), 0o600))
	do("publish", "site.yaml", "--to", s.ref, "--key", "keys/operator.key")
	for i := range many {
		key, err := sign.Generate()
		must(err)
		r := spec.NewReport(&spec.Status{Fleet: "test", Node: fmt.Sprint("n", i), BootID: "b", Health: spec.HealthOK, Sync: spec.SyncCurrent, Tracking: spec.Following,
			Generation: 1, Overlay: oci.Digest(nil), Layer: oci.Digest(nil)})
		r.Key, r.Grade, r.Seq, r.Time, r.Interval = sign.VerifierOf(key).ID(), spec.KeyPinned, 1, time.Now().UTC().Truncate(time.Second), 3600
		data, err := r.Encode()
		must(err)
		data, err = sign.SignReport(key, data)
		must(err)
		raw, blobs := oci.DocumentManifest(oci.TypeReport, data)
		for _, b := range blobs {
			must(s.reg.PutData(t.Context(), oci.RepoReport, b))
		}
		_, err = s.reg.PutManifest(t.Context(), oci.RepoReport, oci.MediaTypeManifest, raw, r.Node)
		must(err)
	}
	const name = "sqlite:fleet.db"
	db, err := store.Open(t.Context(), name)
	must(err)
	must(db.Write(t.Context()))
	must(db.Close())
	damaged, err := sql.Open("sqlite", "fleet.db")
	must(err)
	damaged.SetMaxOpenConns(1)
	for _, query := range []string{"PRAGMA writable_schema = ON", "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'nodes_rev') WHERE name = 'events'"} {
		_, err := damaged.ExecContext(t.Context(), query)
		must(err)
	}
	must(damaged.Close())
	var out bytes.Buffer
	x := &storedReports{from: s.ref, db: name}
	x.look.whom.site = []string{"site.yaml"}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = newApp(&out, &out).fleetShown(ctx, x, func(shown) error { return nil })
	if !store.Lasts(err) || ctx.Err() != nil {
		t.Errorf("%v, %v\n%s", err, ctx.Err(), out.String())
	}
}
