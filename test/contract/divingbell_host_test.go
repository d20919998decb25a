// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/handover"
	agent "github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/program"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// What a whole host does: enrolled in a fleet, below a directory.

// host is an attached host and its fleet.
type host struct {
	*place
	fleet      *fixture.Fleet
	generation uint64
	said       strings.Builder
}

func newHost(p *probe) *host {
	p.Helper()
	h := &host{place: newPlace(p), fleet: fixture.NewFleet(p.T)}
	p.must(h.journal.Close())
	for name, text := range map[string]string{"etc/machine-id": "0123456789abcdef0123456789abcdef\n", "run/x": ""} {
		p.must(os.MkdirAll(filepath.Dir(filepath.Join(h.root, name)), 0o755))
		p.must(os.WriteFile(filepath.Join(h.root, name), []byte(text), 0o644))
	}
	return h
}

// publish signs what a conf compiles to.
func (h *host) publish(conf string) {
	h.Helper()
	h.generation++
	h.fleet.Overlay(spec.Overlay{Items: h.items(hosts + conf)}, sign.Predicate{Generation: h.generation})
	h.fleet.Current(spec.Fleet{}, fixture.Now())
}

func (h *host) options() session.Options {
	return session.Options{Root: h.root, By: "test", Say: func(format string, args ...any) { fmt.Fprintf(&h.said, format+"\n", args...) }}
}

// do opens the host for one verb.
func (h *host) do(verb func(*agent.Node) (*spec.Status, error)) (*spec.Status, error) {
	h.Helper()
	n, err := agent.Open(h.Context(), h.options(), nil)
	h.must(err)
	defer n.Close() // the verb has ended
	return verb(n)
}

func (h *host) sync() (*spec.Status, error) {
	h.Helper()
	return h.do(func(n *agent.Node) (*spec.Status, error) {
		st, err := n.Sync(h.Context())
		if err != nil {
			return st, err
		}
		return n.Settle(h.Context(), st)
	})
}

func (h *host) enroll() {
	h.Helper()
	b := h.fleet.Bootstrap()
	b.Node = fixture.Node
	_, err := program.EnrollHost(h.Context(), h.options(), b, false)
	h.must(err)
}

func takenBackIsAnError(p *probe) {
	h := newHost(p)
	h.publish("conf: {sysctl: {vm.swappiness: 10}}\n")
	h.enroll()
	_, err := h.sync()
	p.must(err)
	h.publish("conf: {sysctl: {vm.swappiness: 20}, exec: {a: {data: \"#!/no/such\\n\", rerun_policy: never}}}\n")
	st, err := h.sync()
	p.holds("the verb", err != nil && strings.Contains(err.Error(), "generation 2 was not applied: "), "%v", err)
	p.holds("status", st != nil && st.Health == spec.HealthDegraded && st.Sync == spec.SyncBehind && st.Generation == 1, "%+v", st)
	p.equal("the setting beside it", "10", h.value("vm/swappiness"))
	p.documented("attached.md", "A change that cannot be made is taken back: exit code 1, `health degraded`, `sync behind`")
}

func attachedVerbs(p *probe) {
	h := newHost(p)
	h.publish("conf: {sysctl: {vm.swappiness: 10}}\n")
	h.enroll()
	st, err := h.sync()
	p.must(err)
	p.equal("after apply", "superhost attached ok", fmt.Sprint(st.Node, " ", st.Mode, " ", st.Health))
	h.write("vm/swappiness", "90")
	p.must(os.RemoveAll(h.root + paths.Run)) // a reboot
	st, err = h.do(func(n *agent.Node) (*spec.Status, error) { return n.Apply(h.Context()) })
	p.must(err)
	p.equal("after a reboot, by the service", "10", h.value("vm/swappiness"))
	n, err := agent.Read(h.Context(), h.options(), nil)
	p.must(err)
	looked, err := n.Status(h.Context())
	p.must(err)
	applied := 0
	for _, i := range looked.Items {
		applied += i.Applied
	}
	p.equal("status", fmt.Sprint(st.Node, " ", 1), fmt.Sprint(looked.Node, " ", applied))
	_, err = h.do(func(n *agent.Node) (*spec.Status, error) { return nil, errors.Join(n.Freeze("", 0), n.Forward("")) })
	p.must(err)
	_, err = h.do(func(n *agent.Node) (*spec.Status, error) { return nil, n.RestoreAll(h.Context()) })
	p.must(err)
	p.equal("after restore --all", "60", h.value("vm/swappiness"))
	p.contains("records", h.said.String(), "enrolled by=test fleet=metal-a node=superhost", "change by=test item=sysctl key=vm.swappiness from=60 to=10 action=change generation=1",
		"frozen by=test generation=1", `why="restore --all"`)
}

func backgroundFails(p *probe) {
	h := newHost(p)
	h.publish("conf: {exec: {a: {data: \"#!/bin/sh\\nsleep 0.2\\nexit 3\\n\", rerun_policy: never, blocking_policy: background}}}\n")
	h.enroll()
	st, err := h.sync()
	p.must(err)
	p.equal("health when the verb ends", spec.HealthDegraded, st.Health)
	for _, i := range st.Items {
		if i.Name == "exec" {
			p.contains("the kind's error", i.Error, "exit 3")
		}
	}
}

func recordedOriginals(p *probe) {
	h := newHost(p)
	ran := filepath.Join(h.effects(), "ran")
	script := "#!/bin/sh\ntouch " + ran + "\n"
	h.publish("conf:\n  sysctl: {vm.swappiness: 10}\n  exec: {once: {rerun_policy: never, data: " + fmt.Sprintf("%q", script) + "}}\n")
	// One list entry a key, each the list so far and the key with its value.
	first := "[];data:" + script
	name := fmt.Sprintf("%x", sha256.Sum256([]byte("["+first+" ["+first+"];rerun_policy:never]")))
	for file, text := range map[string]string{"sysctl/60-divingbell-vm.swappiness.conf": "vm.swappiness = 35\n", "sysctl/60-divingbell-kernel.panic.conf": "kernel.panic = 15\n",
		"exec/" + name + "/exit_code": "0\n", "exec/" + name + "/last_run_timestamp": fmt.Sprintln(time.Now().Unix())} {
		at := filepath.Join(h.root, "var/divingbell", file)
		p.must(os.MkdirAll(filepath.Dir(at), 0o755))
		p.must(os.WriteFile(at, []byte(text), 0o644))
	}
	h.enroll()
	_, err := h.sync()
	p.must(err)
	p.equal("what Divingbell set and nobody wants", "15", h.value("kernel/panic"))
	_, err = os.Stat(ran)
	p.holds("a script that ran under Divingbell", os.IsNotExist(err), "it ran again: %v", err)
	_, err = h.do(func(n *agent.Node) (*spec.Status, error) { return nil, n.RestoreAll(h.Context()) })
	p.must(err)
	p.equal("after restore --all", "35", h.value("vm/swappiness"))
	p.contains("what is said", h.said.String(), "taken-over by=test item=sysctl key=vm/swappiness", "taken over from Divingbell: the originals of 2 kernel parameters")
	p.documented("divingbell.md", "**What Divingbell recorded is taken over**")
}

// mountOrder makes a new root into a node, as the loader does.
func mountOrder(p *probe) {
	require.Root(p.T)
	runtime.LockOSThread() // and never unlocked: the thread and its namespace end with the test
	p.must(unix.Unshare(unix.CLONE_NEWNS))
	p.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	root := p.TempDir()
	p.must(unix.Mount(root, root, "", unix.MS_BIND, "")) // one mount to take all below it away with
	p.Cleanup(func() { p.must(unix.Unmount(root, unix.MNT_DETACH)) })
	for _, dir := range []string{"etc/ssh", "usr/lib/systemd/system", "var/lib/systemd", "home"} {
		p.must(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	p.must(os.WriteFile(filepath.Join(root, "etc/machine-id"), nil, 0o444))
	folder, err := state.Open(p.TempDir())
	p.must(err)
	o := spec.Overlay{Core: spec.Core{Fleet: "metal-a", Node: "superhost"}, Items: p.items(hosts + "conf: {mounts: {data: {mnt_tgt: /srv/data, device: tmpfs, type: tmpfs, before: db.service, after: raid.service}}}\n")}
	n := handover.Node{Root: root, Overlay: &o, State: folder, Say: p.Logf}
	_, err = n.Do()
	p.must(err)
	for unit, want := range map[string]string{"db.service": "After=caisson-agent.service", "caisson-agent.service": "After=raid.service"} {
		text, err := os.ReadFile(filepath.Join(root, "etc/systemd/system", unit+".d/60-caisson-mounts.conf"))
		p.must(err)
		p.contains("what orders "+unit, string(text), want)
	}
}
