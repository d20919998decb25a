// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// What an operator's verb does is one record, with who and under which generation.
func TestVerbsAreRecorded(t *testing.T) {
	m := newMachine(t)
	operation := spec.Operation{Name: "disks/trim", ID: layerNamed("trim"), Type: spec.OneShot, Windows: []string{"night"}, Action: spec.Action{Exec: spec.Command{Argv: []string{"/bin/true"}, Timeout: 5}}}
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}},
		Maintenance: &spec.Maintenance{Horizon: time.Now().Add(time.Hour).UTC().Truncate(time.Second), Windows: map[string]spec.Window{"night": {Intervals: []spec.Interval{}}}, Operations: []spec.Operation{operation}}},
		sign.Predicate{Generation: 1})
	m.confirm(time.Now())
	m.boot()
	for _, verb := range []struct {
		name string
		do   func(n *Node) error
		want string
	}{
		{"apply", func(n *Node) error { _, err := n.cycle.Sync(t.Context()); return err }, `(?s)change by=ann/apply item=sysctl key=vm.swappiness from=60 to=10 action=change generation=1 why=boot\n.*asked by=ann/apply sync=current why="" generation=1\n$`},
		{"freeze", func(n *Node) error { return n.Freeze("a disk", 0) }, `^frozen by=ann/freeze .*generation=1.*\n$`},
		{"forward", func(n *Node) error { return n.Forward("") }, `^.* by=ann/forward .*generation=1.*\n$`},
		{"operation run", func(n *Node) error { _, err := n.Ask("disks/trim", true); return err }, `^operation by="ann/operation run" operation=disks/trim what="asked for now" generation=1\n$`},
		{"operation rerun", func(n *Node) error { _, err := n.Ask("disks/trim", false); return err }, `^operation by="ann/operation rerun" operation=disks/trim what="asked for again" generation=1\n$`},
		{"restore", func(n *Node) error { return n.RestoreAll(t.Context()) }, `^change by=ann/restore item=sysctl key=vm.swappiness from=10 to=60 action=remove generation=0 why="restore --all"\nrestored by=ann/restore changes=1 why="restore --all" generation=1\n$`},
	} {
		var said strings.Builder
		n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, By: "ann/" + verb.name, Say: func(f string, a ...any) { fmt.Fprintf(&said, f+"\n", a...) }}), m.bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		if err := verb.do(n); err != nil {
			t.Errorf("%s: %v", verb.name, err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(verb.want).MatchString(said.String()) {
			t.Errorf("%s: no %s in\n%s", verb.name, verb.want, said.String())
		}
	}
}

// What a setting was deferred for may come later: that is another reason than drift.
func TestWhatComesLaterIsNotDrift(t *testing.T) {
	m := newMachine(t)
	m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "net/netfilter/nf_conntrack_max", Value: "1048576"}}})
	m.boot()
	m.apply()
	value := filepath.Join(m.root, "proc/sys/net/netfilter/nf_conntrack_max")
	if err := os.MkdirAll(filepath.Dir(value), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, why := range []string{"waited", "drift"} {
		if err := os.WriteFile(value, []byte("262144\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, By: "service", Say: func(f string, a ...any) { fmt.Fprintf(&said, f+"\n", a...) }}), m.bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.cycle.Apply(t.Context())
		if err := errors.Join(err, n.Close()); err != nil {
			t.Fatal(err)
		}
		if want := "key=net.netfilter.nf_conntrack_max from=262144 to=1048576 action=change generation=1 why=" + why; !strings.Contains(said.String(), want) {
			t.Errorf("no %q in\n%s", want, said.String())
		}
	}
}
