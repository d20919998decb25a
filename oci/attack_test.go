// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/trust/refusal"
)

// read gets everything of a world, and hashes it, and believes nothing else.
func read(t *testing.T, row attack.Row) error {
	t.Helper()
	w := row.Forge(t)
	switch row.Serve {
	case "parse":
		_, err := ParseManifest(w.Manifest)
		return err
	case "parse index":
		_, err := ParseIndex(w.LayerManifest)
		return err
	}
	s, err := open(Ref{Host: w.Serve(t), Prefix: "metal-a"}, Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r, err := s.Manifest(ctx, RepoNode, "superhost", "")
	if err != nil {
		return err
	}
	if row.Serve == "manifest endless" {
		return nil // it came through
	}
	if _, _, err := ReadOverlay(ctx, s, RepoNode, r); err != nil {
		return err
	}
	if r, err = s.Manifest(ctx, RepoLayer, w.LayerDigest, ""); err != nil {
		return err
	}
	m, err := ParseManifest(r.Data)
	if err != nil {
		return err
	}
	if _, err := ReadBlob(ctx, s, RepoLayer, m.Config, MaxConfig); err != nil {
		return err
	}
	for _, d := range m.Layers {
		if err := readTwice(ctx, s, d); err != nil {
			return err
		}
	}
	return nil
}

// readTwice reads a blob from its start and, where that is cut, from its middle.
func readTwice(ctx context.Context, s Source, d Descriptor) error {
	body, err := s.Blob(ctx, RepoLayer, d, 0)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, body)
	body.Close()
	if n == d.Size {
		return nil
	}
	if n == 0 {
		return errors.Join(err, errors.New("nothing came"))
	}
	if body, err = s.Blob(ctx, RepoLayer, d, n); err != nil {
		return err
	}
	defer body.Close() // the test is over
	_, err = io.Copy(io.Discard, body)
	return err
}

// TestAttacks runs the rows that this package must refuse, and the controls.
func TestAttacks(t *testing.T) {
	for _, row := range attack.Load(t) {
		if row.Refuses() && row.Of() != "oci" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			err := read(t, row)
			if got := refusal.Of(err); got != refusal.Code(row.Code) || !row.Refuses() && err != nil {
				t.Errorf("code %q, want %q: %v", got, row.Code, err)
			}
		})
	}
}

// noRow lists the checks that refuse nothing or that need TLS; both have tests
// of their own.
var noRow = map[string]string{
	"descriptors": "runs descriptorChecks, each of which has rows",
	"status":      "tells failures apart, refuses nothing: TestStatus",
	"few":         "an endless redirect is a failure: TestRedirects",
	"stays TLS":   "needs certificates: TestRedirects",
}

// TestNoCheckIsVacuous takes each check out in turn, and wants every row that
// names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if pkg, name, _ := strings.Cut(r.Check, "/"); pkg == "oci" {
			rows[name] = append(rows[name], r)
		}
	}
	off := map[string][]func() func(){}
	out(off, &manifestChecks, func(c answerCheck) string { return c.name })
	out(off, &blobChecks, func(c answerCheck) string { return c.name })
	out(off, &bodyChecks, func(c bodyCheck) string { return c.name })
	out(off, &parseChecks, func(c parseCheck) string { return c.name })
	out(off, &descriptorChecks, func(c descriptorCheck) string { return c.name })
	out(off, &contentChecks, func(c contentCheck) string { return c.name })
	out(off, &documentChecks, func(c documentCheck) string { return c.name })
	out(off, &capChecks, func(c capCheck) string { return c.name })
	out(off, &redirectChecks, func(c redirectCheck) string { return c.name })
	off["strict"] = []func() func(){lenientParse}
	for name, switches := range off {
		if noRow[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) == 0 {
				t.Fatal("no attack names this check")
			}
			for _, s := range switches {
				defer s()()
			}
			for _, r := range rows[name] {
				if err := read(t, r); refusal.Of(err) == refusal.Code(r.Code) {
					t.Errorf("%s: refused as %s all the same: %v", r.Name, r.Code, err)
				}
			}
		})
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("attacks name the check %q, which is none of this package", name)
	}
}

func out[C any](off map[string][]func() func(), list *[]C, name func(C) string) {
	for _, c := range *list {
		n := name(c)
		off[n] = append(off[n], func() func() {
			was := *list
			*list = slices.DeleteFunc(slices.Clone(was), func(c C) bool { return name(c) == n })
			return func() { *list = was }
		})
	}
}

// lenientParse reads manifests as a careless program does.
func lenientParse() func() {
	was := parseChecks
	parseChecks = slices.Clone(was)
	for i := range parseChecks {
		if parseChecks[i].name == "strict" {
			parseChecks[i].ok = func(p *parsed) error {
				for _, into := range []any{p.into, &p.shape} {
					_ = json.NewDecoder(strings.NewReader(string(p.raw))).Decode(into) // whatever can be read of it
				}
				p.spread()
				return nil
			}
		}
	}
	return func() { parseChecks = was }
}
