// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site"
)

// knownFailures are rows that spec/site accepts and a node or the builder
// refuses. The list may only shrink: a row that passes has to leave it.
var knownFailures = []string{}

// TestContract: whatever spec/site calls valid, everyone after it accepts.
func TestContract(t *testing.T) {
	signer := newSigner(t)
	rows := collect(t)
	valid := 0
	for _, row := range rows {
		s, err := locked(t, row)
		if err != nil {
			if row.must {
				t.Errorf("%s: %v", row.name, err)
			}
			continue // the site refuses it, so nobody else sees it
		}
		valid++
		err = carry(t, signer, s)
		known := slices.Contains(knownFailures, row.name)
		switch {
		case err != nil && !known:
			t.Errorf("%s: the site is valid, but %v", row.name, err)
		case err == nil && known:
			t.Errorf("%s passes: take it off the list of known failures", row.name)
		}
	}
	for _, name := range knownFailures {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == name }) {
			t.Errorf("there is no row %q to fail", name)
		}
	}
	if valid < 40 {
		t.Errorf("only %d of %d rows are valid sites: the test sees too little", valid, len(rows))
	}
}

const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

// carry takes what a site compiles to through the rest of the chain.
func carry(t *testing.T, signer *ecdsa.PrivateKey, s *site.Site) error {
	var problems []error
	if s.HasLayer() {
		variants, err := s.Variants()
		if err != nil {
			return err
		}
		for _, v := range variants {
			if err := builder.Check(v.Recipe); err != nil {
				problems = append(problems, fmt.Errorf("the builder refuses it: %w", err))
			}
		}
	}
	for _, n := range s.Nodes() {
		layer := ""
		if s.HasLayer() {
			layer = digest
		}
		doc, err := s.Compile(n.Name, layer, "")
		if err != nil {
			return err
		}
		overlay, err := accept(signer, s.Name(), n.Name, n.Match, layer, doc)
		if err != nil {
			problems = append(problems, fmt.Errorf("node %s does not accept it: %w", n.Name, err))
			continue
		}
		problems = append(problems, refusals(t, overlay.Items)...)
		problems = append(problems, besides(overlay)...)
	}
	return errors.Join(problems...)
}

// besides returns what the agent refuses of an overlay beside its items.
func besides(o *spec.Overlay) []error {
	problems := []error{rules.Confirm(o.Confirm)}
	if a := o.Agent; a != nil {
		if a.Poll != 0 {
			problems = append(problems, rules.Poll(a.Poll))
		}
		if a.Metrics != nil {
			problems = append(problems, rules.Metrics(*a.Metrics))
		}
		if a.Report != nil {
			problems = append(problems, rules.Reporting(*a.Report))
		}
	}
	if o.Gates != nil {
		for _, check := range o.Gates.Checks {
			problems = append(problems, rules.HealthCheck(check))
		}
	}
	if m := o.Maintenance; m != nil {
		for _, op := range m.Operations {
			problems = append(problems, rules.Operation(op))
		}
		for _, s := range m.Slots {
			problems = append(problems, rules.Slot(s))
		}
	}
	if o.Swap != nil {
		problems = append(problems, rules.Order(o.Swap.Order))
	}
	for _, s := range o.Services {
		problems = append(problems, rules.Service(s))
	}
	return problems
}

func newSigner(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// accept signs doc as a publisher does and asks the node's own decision.
func accept(signer *ecdsa.PrivateKey, fleet, node string, match spec.Match, layer string, doc []byte) (*spec.Overlay, error) {
	der, err := x509.MarshalPKIXPublicKey(&signer.PublicKey)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	bundle, err := sign.SignOverlay(signer, oci.Digest(doc), sign.Predicate{Fleet: fleet, Node: node, Match: sign.Match(match), Layer: layer,
		Generation: 1, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		return nil, err
	}
	a, err := trust.All().Accept(trust.Candidate{Document: doc, Bundles: [][]byte{bundle}},
		spec.Bootstrap{Fleet: fleet, Threshold: 1, Keys: []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}},
		trust.Identity{Node: node, MACs: match.MACs, UUIDs: match.UUIDs}, trust.Clock{RTC: now}, trust.Known{})
	if err != nil {
		return nil, err
	}
	return &a.Overlay, nil
}

// refusals asks every item to check what is wanted, in a root that has what the
// values name, and returns what is refused for the value's sake.
func refusals(t *testing.T, want spec.Items) (problems []error) {
	root := fakeRoot(t, want)
	scopes := item.Scopes{Kernel: "kernel", Root: "root"}
	j, err := journal.Open(filepath.Join(root, "state"), scopes)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() // nothing was written
	table := items.Table(want, items.Options{Journal: j, Scopes: scopes, Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"),
		Etc: filepath.Join(root, "etc"), Dev: filepath.Join(root, "dev"), State: filepath.Join(root, "state")})
	for _, i := range table {
		drift, err := i.Check(context.Background())
		if err != nil {
			problems = append(problems, fmt.Errorf("%s cannot be checked: %w", i.Name(), err))
		}
		for _, d := range drift {
			if d.Action == spec.ActionRefuse && !ofThisMachine(d.Reason) {
				problems = append(problems, fmt.Errorf("%s refuses %q: %s", d.Item, d.Key, d.Reason))
			}
		}
	}
	return problems
}

// ofThisMachine reports whether a refusal is about the machine the test runs on,
// not about the value. What is not listed counts as about the value.
func ofThisMachine(reason string) bool {
	for _, of := range []string{"there is no user ", "there is no group ", "passwd has no ", "group has no ",
		"the driver takes at most ", "it cannot be read, so it could not be put back: operation not supported", "it cannot be read, so it could not be put back: the driver has no "} {
		if strings.HasPrefix(reason, of) {
			return true
		}
	}
	return strings.HasPrefix(reason, `the interpreter "/`) || // a program that this machine lacks
		strings.Contains(reason, " is not empty, the mount would hide ")
}

// fakeRoot makes a root with every kernel parameter and attribute that is wanted.
func fakeRoot(t *testing.T, want spec.Items) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"proc/self", "proc/sys", "sys", "etc", "dev", "state"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{"proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n", "proc/self/mountinfo": "1 0 0:1 / / rw - tmpfs tmpfs rw\n",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:20000::::::\n"}
	for _, p := range want.Passwords {
		files["etc/shadow"] += p.User + ":*:20000::::::\n"
	}
	for _, k := range want.Sysctl {
		files[filepath.Join("proc/sys", filepath.Clean("/"+k.Key))] = "another value\n"
	}
	for _, a := range want.Sysfs {
		files[filepath.Clean("/"+a.Path)] = "another value\n"
	}
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
