// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// sealed publishes a generation with passwords, on a layer.
func (h *housed) sealed(generation uint64, layer string, items spec.Items, secrets ...spec.Secret) {
	h.t.Helper()
	o := spec.Overlay{Core: spec.Core{Layer: h.named[layer]}, Items: items, Secrets: secrets}
	o.SetNeeds()
	h.Overlay(o, sign.Predicate{Generation: generation})
	h.confirm(fixture.Now())
}

// password is the field of a user of shadow(5).
func (h *housed) password(user string) string {
	return strings.Split(h.row("shadow", user)+"::", ":")[1]
}

// Passwords that are secrets come with an overlay, change, are corrected, go over to another
// layer, are taken back with a change that fails, and leave nothing behind.
func TestPasswords(t *testing.T) {
	ann := people(nil).user("ann", 1001, "key-a")
	h := newHoused(t, ann)
	to := h.recipient()
	one, two, three := "$6$one$"+strings.Repeat("1", 86), "$6$two$"+strings.Repeat("2", 86), "$6$three$"+strings.Repeat("3", 86)
	wants := spec.Items{Passwords: []spec.Password{{User: "ann", Secret: "pw"}}}
	is := func(when string, st *spec.Status, generation uint64, want string) {
		t.Helper()
		if st.Generation != generation || st.Health != spec.HealthOK || h.password("ann") != want {
			t.Errorf("%s: generation %d, %s, %+v, ann has %q, want %q", when, st.Generation, st.Health, st.Drift, h.password("ann"), want)
		}
		said, err := json.Marshal(st)
		for _, hash := range []string{one, two, three} {
			if err != nil || bytes.Contains(said, []byte(hash)) {
				t.Errorf("%s: the status has a hash: %s, %v", when, said, err)
			}
		}
	}

	h.sealed(2, "first", wants)
	st := h.sync()
	is("not accepted", st, 2, "*")
	if len(st.Drift) != 1 || st.Drift[0].Action != spec.ActionCannot || st.Drift[0].Reason != "no key" || st.Drift[0].Item != "passwords" {
		t.Errorf("not accepted: %+v", st.Drift)
	}
	h.sealed(3, "first", wants, fixture.Seal(t, "pw", to, one+"\n"))
	is("sealed", h.sync(), 3, one)
	h.sealed(4, "first", wants, fixture.Seal(t, "pw", to, two))
	is("rotated", h.sync(), 4, two)
	st, err := h.rollback()
	if err != nil {
		t.Fatal(err)
	}
	is("one back", st, 3, one)
	h.told(func(n *Node) error { return n.Forward("") })
	is("forth", h.sync(), 4, two)

	// Somebody changes it on the node: it is drift like any other.
	shadow, err := os.ReadFile(h.root + "/etc/shadow")
	if err == nil {
		err = os.WriteFile(h.root+"/etc/shadow", bytes.Replace(shadow, []byte(two), []byte("$6$byhand"), 1), 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	is("corrected", h.apply(), 4, two)

	// Another layer changes the same row, and brings somebody with a password.
	both := spec.Items{Passwords: append(wants.Passwords, spec.Password{User: "bob", Secret: "pw"})}
	second := ann.user("bob", 1002, "key-b")
	second["etc/shadow"] = strings.Replace(second["etc/shadow"], "ann:*:20000:", "ann:*:20100:", 1)
	h.layer("second", second)
	h.sealed(5, "second", both, fixture.Seal(t, "pw", to, three))
	is("over another layer", h.sync(), 5, three)
	if h.password("bob") != three || !strings.Contains(h.row("shadow", "ann"), ":20100:") {
		t.Errorf("bob has %q, ann %q", h.row("shadow", "bob"), h.row("shadow", "ann"))
	}

	// A change that fails is taken back, to the password of before.
	bad := both
	bad.Exec = []spec.Exec{{Name: "later", Data: "#!/bin/sh\nexit 1\n", OnFailure: "rollback"}}
	h.sealed(6, "second", bad, fixture.Seal(t, "pw", to, one))
	n := h.open()
	_, err = n.cycle.Sync(t.Context())
	if closed := n.Close(); err == nil || closed != nil {
		t.Fatalf("a script that fails changes the node: %v, %v", err, closed)
	}
	if st := h.apply(); st.Generation != 5 || h.password("ann") != three || h.password("bob") != three {
		t.Errorf("taken back: generation %d, ann has %q, bob %q", st.Generation, h.password("ann"), h.password("bob"))
	}

	// It leaves, with the layer that brought bob; and nothing is kept of any.
	h.sealed(7, "first", spec.Items{})
	is("it left", h.sync(), 7, "*")
	if h.row("shadow", "ann") != "ann:*:20000::::::" || h.row("shadow", "bob") != "" {
		t.Errorf("ann has %q, bob %q", h.row("shadow", "ann"), h.row("shadow", "bob"))
	}
	for _, where := range []string{paths.State, paths.Run} {
		err := filepath.WalkDir(h.root+where, func(name string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(name)
			for _, hash := range []string{one, two, three} {
				if bytes.Contains(data, []byte(hash[7:60])) {
					t.Errorf("%s has a hash", name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
