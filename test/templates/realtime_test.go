// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
)

// checkRealtime compares what an operation holds with log, and has the node's own code
// hold the kernel parameters below a directory: what somebody changes is set again.
func (run outcome) checkRealtime(t *testing.T, name string) {
	o := templated(t, name, run.with, run.beside)
	r := o.Maintenance.Realtime
	if len(r) != 1 || !strings.HasPrefix(r[0].From, name+"@sha256:") {
		t.Fatalf("%+v", r)
	}
	values := map[spec.ItemKey]string{}
	for _, s := range o.Items.Sysctl {
		values[spec.ItemKey{Item: "sysctl", Key: s.Key}] = s.Value
	}
	for _, n := range o.Items.NICs {
		for _, s := range n.Settings {
			values[spec.ItemKey{Item: "nics", Key: n.Match.Name + "/" + s.Group + "/" + s.Name}] = s.Value
		}
	}
	var got []string
	for _, k := range r[0].Keys {
		got = append(got, k.Key+"="+values[k])
	}
	if strings.Join(got, " ") != run.log || len(got) != len(values) {
		t.Errorf("it holds %q, want %q", got, run.log)
	}
	hold(t, o.Items.Sysctl)
}

// hold sets kernel parameters, lets somebody change the first of them, and sets it again.
func hold(t *testing.T, want []spec.Sysctl) {
	if len(want) == 0 {
		return
	}
	root := t.TempDir()
	read := func(key string) string {
		data, err := os.ReadFile(filepath.Join(root, "proc/sys", key))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	for _, s := range want {
		if err := os.MkdirAll(filepath.Join(root, "proc/sys", filepath.Dir(s.Key)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join("proc/sys", s.Key), "7\n")(t, root)
	}
	j, err := journal.Open(filepath.Join(root, "journal"), item.Scopes{Kernel: "k", Root: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() // the test is over
	for range 2 {
		result := items.Reconcile(t.Context(), []item.Item{tunable.NewSysctl(want, filepath.Join(root, "proc/sys"), j)}, j)
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		for _, s := range want {
			if got := read(s.Key); got != s.Value {
				t.Errorf("%s is %s, want %s", s.Key, got, s.Value)
			}
		}
		write(filepath.Join("proc/sys", want[0].Key), "7\n")(t, root)
	}
}
