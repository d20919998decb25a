// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/test/itemtest"
)

func quiet(string, ...any) {}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

var limitsWant = []spec.Limit{
	{ID: "core", Domain: "0:", Type: "hard", Item: "core", Value: "0"},
	{ID: "files", Domain: "@staff", Type: "-", Item: "nofile", Value: "unlimited"},
}

func TestLimitsConformance(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
	}{
		{"no folder", nil},
		{"foreign files and one of our name", map[string]string{
			"90-admin.conf":         "* soft nproc 10\n",
			"60-caisson-core.conf":  "# mine\nroot hard core 5\n",
			"60-caisson-other.conf": "root hard core 7\n",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			itemtest.Run(t, func(t *testing.T) itemtest.World {
				etc := t.TempDir()
				dir := filepath.Join(etc, "security", "limits.d")
				for name, text := range tc.files {
					write(t, filepath.Join(dir, name), text, 0o640)
				}
				return itemtest.World{
					Wanted:   func(j item.Journal) item.Item { return NewLimits(limitsWant, dir, j, quiet) },
					Empty:    func(j item.Journal) item.Item { return NewLimits(nil, dir, j, quiet) },
					Snapshot: func() string { return snapshot(t, etc) },
				}
			})
		})
	}
}

// Divingbell's revert deleted every file in the directory that it had not just
// written, on every host, by default.
func TestLimitsForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "20-nproc.conf"), "* soft nproc 1024\n", 0o644)
	write(t, filepath.Join(dir, "60-caisson-unknown.conf"), "* soft nproc 1\n", 0o644)
	before := snapshot(t, dir)
	j := itemtest.Journal(t, t.TempDir())
	it := NewLimits(nil, dir, j, quiet)
	drift, err := it.Check(t.Context())
	if err != nil || len(drift) > 0 {
		t.Fatalf("an empty config finds %v, %v", drift, err)
	}
	if after := snapshot(t, dir); after != before {
		t.Fatalf("an empty config changed the folder:\n%s", after)
	}
}

func TestValidate(t *testing.T) {
	good := spec.Limit{ID: "a", Domain: "root", Type: "hard", Item: "nofile", Value: "1"}
	for _, tc := range []struct {
		name   string
		change func(*spec.Limit)
		want   string // fragment of the error, "" when it is valid
	}{
		{"plain", func(*spec.Limit) {}, ""},
		{"zero", func(l *spec.Limit) { l.Value = "0" }, ""},
		{"minus one", func(l *spec.Limit) { l.Value = "-1" }, ""},
		{"negative nice", func(l *spec.Limit) { l.Item, l.Value = "nice", "-10" }, ""},
		{"slash in id", func(l *spec.Limit) { l.ID = "../x" }, "used as a name"},
		{"line end in domain", func(l *spec.Limit) { l.Domain = "root\n*" }, "is not a domain"},
		{"empty domain", func(l *spec.Limit) { l.Domain = "" }, "is not a domain"},
		{"type", func(l *spec.Limit) { l.Type = "firm" }, "not one of hard, soft, -"},
		{"item", func(l *spec.Limit) { l.Item = "files" }, "not an item"},
		{"value", func(l *spec.Limit) { l.Value = "1e+06" }, "not a limit"},
		{"negative", func(l *spec.Limit) { l.Value = "-2" }, "not a limit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := good
			tc.change(&l)
			err := rules.Limit(l)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("Limit(%+v) = %v, want %q", l, err, tc.want)
			}
		})
	}
}

func TestLaterFileIsReported(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "90-admin.conf"), "0:\thard core 100 # ours\n", 0o644)
	var said []string
	it := NewLimits(limitsWant, dir, itemtest.Journal(t, t.TempDir()), func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) })
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "90-admin.conf") {
		t.Fatalf("said %q, want one warning that names the later file", said)
	}
}

// PAM lets nobody in whose limit of open files the kernel does not grant.
func TestWaitsForTheKernelToGrantIt(t *testing.T) {
	proc, dir := t.TempDir(), filepath.Join(t.TempDir(), "limits.d")
	write(t, filepath.Join(proc, "sys/fs/nr_open"), "1048576\n", 0o644)
	want := []spec.Limit{{ID: "all", Domain: "*", Type: "-", Item: "nofile", Value: "2097152"}, {ID: "most", Domain: "root", Type: "-", Item: "nofile", Value: "1048576"}}
	it := NewLimits(want, dir, itemtest.Journal(t, t.TempDir()), t.Logf).WithKernel(proc)
	for _, left := range []string{"all", ""} {
		drift, err := it.Check(t.Context())
		if err == nil {
			err = it.Apply(t.Context(), drift)
		}
		if err != nil {
			t.Fatal(err)
		}
		if drift, err = it.Check(t.Context()); err != nil || (len(drift) > 0) != (left != "") || left != "" && (drift[0].Key != left || drift[0].Action != spec.ActionDefer) {
			t.Errorf("%+v, %v, want %q left", drift, err, left)
		}
		write(t, filepath.Join(proc, "sys/fs/nr_open"), "2097152\n", 0o644)
	}
}
