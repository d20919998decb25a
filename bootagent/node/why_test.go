// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// answers is a registry that has something of its own to say of each node.
type answers struct {
	oci.Source
	answer func() (oci.Response, error)
}

func (a answers) Manifest(context.Context, string, string, string) (oci.Response, error) {
	return a.answer()
}

// TestWhyNamesTheFault: what remains of a fault of docs/faults.md is named by why: the item
// and the key, the check, or what was asked, with the cause.
func TestWhyNamesTheFault(t *testing.T) {
	runs := func(items spec.Items) func(t *testing.T) *machine {
		return func(t *testing.T) *machine {
			m := newMachine(t)
			m.publishItems(1, layerNamed("a"), items)
			m.boot()
			m.apply()
			return m
		}
	}
	asks := func(answer func() (oci.Response, error)) func(t *testing.T) *machine {
		return func(t *testing.T) *machine {
			m := runningMachine(t)
			n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Fetch: func(b spec.Bootstrap, way track.Way) (oci.Source, error) {
				s, err := track.Open(b, way)
				return answers{s, answer}, err
			}}), m.bootstrap())
			if err != nil {
				t.Fatal(err)
			}
			if st, err := n.cycle.Sync(t.Context()); err == nil {
				t.Errorf("it was accepted: %+v", st)
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	for name, c := range map[string]struct {
		happens func(t *testing.T) *machine
		names   []string // all of them in one finding
	}{
		"16 there is nothing good before": {func(t *testing.T) *machine {
			m := newMachine(t)
			m.enrolled()
			m.publishGated(1, layer("a"), "10", 0)
			m.boot()
			m.apply()
			m.judge(3)
			return m
		}, []string{"generation 1 did not pass its gates", "ready: the file is not there", "there is nothing better"}},
		"18 a change cuts the node off": {func(t *testing.T) *machine {
			r := newRemote(t)
			r.up()
			r.publishLink(2, "a", "20", "0")
			if _, err := r.syncOnce(); err == nil {
				t.Error("it was not undone")
			}
			return r.machine
		}, []string{"generation 2 was undone", "no route to host", "generation 1 is in effect"}},
		"19 a boot cuts the node off": {func(t *testing.T) *machine {
			r := newRemote(t)
			r.publishLink(1, "a", "10", "0")
			r.boot()
			r.must(r.applyOnce())
			return r.machine
		}, []string{"generation 1 is not in effect", "runs without what could cut this node off", "no route to host"}},
		"20 nobody confirms a change": {func(t *testing.T) *machine {
			r := newRemote(t)
			r.up()
			r.publishConfirm(2, "a", "20", "1")
			r.must(r.syncOnce())
			r.expire()
			r.must(r.applyOnce())
			return r.machine
		}, []string{"generation 2 was undone", "nobody confirmed it within 3600 s"}},
		"21 the agent is killed while a change is on trial": {func(t *testing.T) *machine {
			r := newRemote(t)
			r.up()
			r.publishConfirm(2, "a", "20", "1")
			r.must(r.syncOnce())
			b, err := record.LoadBoot(r.root + paths.RunBoot) // and the machine is started over
			if err != nil {
				t.Fatal(err)
			}
			b.RootID, b.Live = "root2", record.Live{}
			s := r.state()
			s.Trial.Boot = "the boot before"
			folder, err := state.Open(r.root + paths.State)
			if err = errors.Join(err, record.SaveBoot(r.root+paths.RunBoot, b), folder.Save(s)); err != nil {
				t.Fatal(err)
			}
			r.must(r.applyOnce())
			return r.machine
		}, []string{"generation 2 was undone", "before it was confirmed"}},
		"22 a live change fails half-way": {func(t *testing.T) *machine {
			m := runningMachine(t)
			m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
				Exec: []spec.Exec{{Name: "fails", Data: "#!/bin/sh\nexit 7\n", OnFailure: "rollback", Blocking: "foreground"}}})
			n := m.open()
			if _, err := n.cycle.Sync(t.Context()); err == nil {
				t.Error("it did not fail")
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			return m
		}, []string{"generation 2 is rejected", "exit status 7", `"item":"exec"`, `"key":"fails"`, "took it back"}},
		"23 a change was taken back": {func(t *testing.T) *machine {
			m := runningMachine(t)
			m.publishItems(2, layerNamed("a"), spec.Items{Exec: []spec.Exec{{Name: "fails", Data: "#!/bin/sh\nexit 7\n", OnFailure: "rollback", Blocking: "foreground"}}})
			n := m.open()
			if _, err := n.cycle.Sync(t.Context()); err == nil {
				t.Error("it did not fail")
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			m.sync()
			m.apply()
			return m
		}, []string{"generation 2 is rejected", "exit status 7", `"key":"fails"`, "does not try it again", `"transition":"taken-back"`}},
		"24 the kernel refuses a value": {func(t *testing.T) *machine {
			m := newMachine(t)
			if err := os.WriteFile(filepath.Join(m.root, "proc/sys/vm/fixed"), []byte("1\n"), 0o444); err != nil {
				t.Fatal(err)
			}
			m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/fixed", Value: "2"}}})
			m.boot()
			m.apply()
			return m
		}, []string{"sysctl is not as the overlay says", `"key":"vm/fixed"`, "the kernel does not let it be changed"}},
		"31 a script does not end": {runs(spec.Items{Exec: []spec.Exec{{Name: "sleeps", Data: "#!/bin/sh\nsleep 60\n", Timeout: 1, Blocking: "foreground"}}}),
			[]string{"exec is not as the overlay says", `"key":"sleeps"`, `it did not end within 1s at `, "caisson-agent status --logs sleeps"}},
		"33 somebody changes a setting again and again": {func(t *testing.T) *machine {
			m := runningMachine(t)
			for range usual + 1 {
				m.swappiness("77")
				m.apply()
			}
			return m
		}, []string{"was corrected 5 times without success", `"key":"vm/swappiness"`, "caisson-agent clear sysctl:vm/swappiness"}},
		"34 an operation breaks its node": {func(t *testing.T) *machine {
			d := newDisturbed(t, `rm "$1"`, 1)
			d.until(spec.OperationFailed, "", "the node is not well after it: ready: ", true)
			return d.machine
		}, []string{`"item":"operation"`, "the node is not well after it: ready: "}},
		"54 the registry answers 503": {asks(func() (oci.Response, error) {
			return oci.Response{}, errors.New("GET https://registry.example/v2/node/manifests/superhost: 503 Service Unavailable")
		}), []string{"the registry does not answer", "registry.example", "503 Service Unavailable", "goes on with generation 1"}},
		"54 the registry answers HTML": {asks(func() (oci.Response, error) {
			return oci.Response{Data: []byte("<html>log in</html>"), MediaType: oci.MediaTypeManifest}, nil
		}), []string{"what the registry has for this node is refused", "goes on with generation 1"}},
		"57 the name server dies": {asks(func() (oci.Response, error) {
			return oci.Response{}, &net.DNSError{Err: "server misbehaving", Name: "registry.example", Server: "192.0.2.53:53"}
		}), []string{"the registry does not answer", "registry.example", "192.0.2.53", "goes on with generation 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.happens(t).open()
			w, err := n.Why(t.Context())
			if err = errors.Join(err, n.Close()); err != nil {
				t.Fatal(err)
			}
			for _, f := range w.Findings {
				told, err := json.Marshal(f)
				if err != nil {
					t.Fatal(err)
				}
				all := true
				for _, text := range c.names {
					all = all && strings.Contains(string(told), text)
				}
				if all {
					return
				}
			}
			t.Errorf("no finding has all of %q: %+v", c.names, w.Findings)
		})
	}
}

// The status says why something is not as wanted, though only a
// run tries and finds out; and no more of it once something else is wrong.
func TestStatusSaysWhyARunFailed(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	mount := func(name string) spec.Mount {
		return spec.Mount{ID: name, Device: "x", Type: "nosuchfs", Target: m.root + "/" + name}
	}
	m.publishItems(1, layerNamed("a"), spec.Items{Mounts: []spec.Mount{mount("mnt")}})
	m.boot()
	m.apply()
	why := func() string {
		t.Helper()
		n := m.open()
		defer n.Close() // the test is over
		st, err := n.look.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Items[slices.IndexFunc(st.Items, func(s spec.ItemStatus) bool { return s.Name == "mounts" })].Error
	}
	const reason = `the kernel has no file system "nosuchfs"`
	if got := why(); !strings.Contains(got, reason) {
		t.Errorf("status says %q", got)
	}
	if err := os.WriteFile(m.root+"/proc/self/mountinfo", []byte("30 1 0:9 / "+m.root+"/mnt rw - tmpfs other rw\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := why(); !strings.Contains(got, "something else is mounted there") || strings.Contains(got, reason) {
		t.Errorf("when something else is wrong, status says %q", got)
	}
}
