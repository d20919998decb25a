// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/watch/bpf"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Namespaces that a machine starts with, see the kernel's include/linux/proc_ns.h: in
// others a process has another number, and a tree of cgroups is not the whole one.
const (
	firstPIDs    = "pid:[4026531836]"
	firstCgroups = "cgroup:[4026531835]"
)

// cgroup is the root of those that protection binds.
func (n *Node) cgroup() (*os.File, error) {
	needs := func(err error) error { return fmt.Errorf("%w (it needs Linux 6.1 and cgroup v2)", err) }
	for name, first := range map[string]string{"pid": firstPIDs, "cgroup": firstCgroups} {
		if now, err := os.Readlink("/proc/self/ns/" + name); err != nil || now != first && (name == "pid" || n.o.Cgroup == "") {
			return nil, errors.Join(err, fmt.Errorf("the agent runs in a container: its %s namespace is not the machine's", name))
		}
	}
	if n.o.Cgroup != "" {
		return os.Open(n.o.Cgroup)
	}
	root, err := bpf.Root()
	if err != nil {
		return nil, needs(err)
	}
	return root, nil
}

// kernel reports whether this node has a kernel to ask, and not only a directory of a test.
func (n *Node) kernel() bool { return n.o.Root == "" || n.o.Cgroup != "" }

// exempt lets a process write what the kernel protects, and nobody else; 0 is none.
// The lock is held by one process at a time, which is the one.
func (n *Node) exempt(pid int) error {
	if n.boot == nil || len(n.boot.Live.Protection.Keys) == 0 || !n.kernel() {
		return nil
	}
	cgroup, err := n.cgroup()
	if err != nil {
		return nil // nothing was protected from here
	}
	defer cgroup.Close() // only read
	if err := bpf.Exempt(cgroup, pid); err != nil {
		return fmt.Errorf("exempt process %d from protection: %w", pid, err)
	}
	return nil
}

// follow has the kernel protect what an overlay wants protected, once it is set. Somebody
// who has paused a node is to be able to change what is on it.
func (n *Node) follow(found *track.Found) error {
	if !n.kernel() {
		return nil
	}
	keys := found.Overlay.Protected()
	if p, err := n.pause(found); err != nil {
		return err
	} else if p != nil {
		keys = nil
	}
	live := &n.boot.Live
	if len(keys) == 0 && len(live.Protection.Keys) == 0 {
		live.Protection.Trouble = ""
		return nil
	}
	trouble := ""
	if err := n.protect(keys); err != nil {
		trouble = "kernel parameters are not protected: " + err.Error()
	}
	if trouble != "" && trouble != live.Protection.Trouble {
		n.record("unprotected", events.With("why", trouble))
	}
	live.Protection.Trouble = trouble
	return nil
}

// protect has the kernel refuse writes of some parameters and no longer of others. What it
// may protect is on disk before it is asked, so whoever comes next knows what to lift.
func (n *Node) protect(keys []string) error {
	if !n.kernel() {
		return nil
	}
	had := n.boot.Live.Protection
	cgroup, err := n.cgroup()
	if err != nil {
		if len(keys) == 0 && len(had.Keys) == 0 {
			return nil
		}
		return err
	}
	defer cgroup.Close() // only read
	if had.Trouble == "" && len(keys) > 0 && slices.Equal(keys, had.Keys) && bpf.Protects(cgroup) {
		return nil
	}
	both := slices.Concat(had.Keys, keys)
	slices.Sort(both)
	n.boot.Live.Protection.Keys = slices.Compact(both)
	if err := n.remember(); err != nil {
		return err
	}
	if err := bpf.Protect(cgroup, keys); err != nil {
		return fmt.Errorf("%w (it needs Linux 6.1 and cgroup v2)", err)
	}
	n.boot.Live.Protection.Keys = keys
	n.boot.Live.Refused = slices.DeleteFunc(n.boot.Live.Refused, func(r spec.RefusedWrite) bool { return !slices.Contains(keys, r.Key) })
	for _, key := range both {
		was, is := had.Trouble == "" && slices.Contains(had.Keys, key), slices.Contains(keys, key)
		switch {
		case is && !was:
			n.record("protected", events.With("item", "sysctl"), events.With("key", rules.SysctlName(key)))
		case was && !is:
			n.record("lifted", events.With("item", "sysctl"), events.With("key", rules.SysctlName(key)))
		}
	}
	return nil
}

// Lift has the kernel refuse nothing any more, until the next run. Values stay.
func (n *Node) Lift() error {
	return errors.Join(n.protect(nil), n.remember())
}

// Protected are the parameters of which the kernel refuses writes, as paths.
func (n *Node) Protected() []string {
	if n.boot.Live.Protection.Trouble != "" {
		return nil
	}
	return n.boot.Live.Protection.Keys
}

// Bounds of what is told of refused writes: programs by parameter in a status, and for
// how long one that goes on trying has one record.
const (
	maxRefused  = 16
	refusedEach = time.Minute
)

// NoteRefused writes down which writes the kernel has refused.
func (n *Node) NoteRefused(list []spec.RefusedWrite) error {
	live := &n.boot.Live
	for _, r := range list {
		if !slices.Contains(n.Protected(), r.Key) {
			continue // it was lifted meanwhile
		}
		last := time.Time{}
		if i := slices.IndexFunc(live.Refused, func(o spec.RefusedWrite) bool { return o.Key == r.Key && program(o.Rival) == program(r.Rival) }); i >= 0 {
			last = live.Refused[i].At
			r.Count += live.Refused[i].Count
			live.Refused = slices.Delete(live.Refused, i, i+1)
		}
		live.Refused = append(live.Refused, r)
		live.Refused = live.Refused[max(0, len(live.Refused)-maxRefused):]
		if !r.At.Truncate(refusedEach).Equal(last.Truncate(refusedEach)) {
			n.record("refused", events.With("item", "sysctl"), events.With("key", rules.SysctlName(r.Key)), events.With("to", r.Value), events.With("count", r.Count), events.With("rival", r.Rival), events.With("why", "it is protected"))
		}
	}
	return n.remember()
}

// program is a rival without the number of its process: one that is started again and
// again is the same.
func program(rival string) string {
	before, rest, _ := strings.Cut(rival, " (pid ")
	_, after, _ := strings.Cut(rest, ")")
	return before + after
}
