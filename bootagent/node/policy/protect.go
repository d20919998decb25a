// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/watch/bpf"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Protection has the kernel refuse writes of the parameters that an overlay wants protected, by
// programs of the machine's root cgroup, and keeps account of the writes that were refused. One
// process is exempt: the agent that holds the node's lock.
type Protection struct {
	Root   string // of a test; "" is this machine
	Cgroup string // whose processes it binds; "" is all of this machine, of a test's root nobody
	Owner  *record.Owner
	Log    func(event string, fields ...events.Field)
}

// Namespaces that a machine starts with, see the kernel's include/linux/proc_ns.h: in
// others a process has another number, and a tree of cgroups is not the whole one.
const (
	firstPIDs    = "pid:[4026531836]"
	firstCgroups = "cgroup:[4026531835]"
)

// cgroup is the root of those that protection binds.
func (p *Protection) cgroup() (*os.File, error) {
	needs := func(err error) error { return fmt.Errorf("%w (it needs Linux 6.1 and cgroup v2)", err) }
	for name, first := range map[string]string{"pid": firstPIDs, "cgroup": firstCgroups} {
		if now, err := os.Readlink("/proc/self/ns/" + name); err != nil || now != first && (name == "pid" || p.Cgroup == "") {
			return nil, errors.Join(err, fmt.Errorf("the agent runs in a container: its %s namespace is not the machine's", name))
		}
	}
	if p.Cgroup != "" {
		return os.Open(p.Cgroup)
	}
	root, err := bpf.Root()
	if err != nil {
		return nil, needs(err)
	}
	return root, nil
}

// Kernel reports whether this node has a kernel to ask, and not only a directory of a test.
func (p *Protection) Kernel() bool { return p.Root == "" || p.Cgroup != "" }

// Exempt lets a process write what the kernel protects, and nobody else; 0 is none.
// The lock is held by one process at a time, which is the one.
func (p *Protection) Exempt(pid int) error {
	if len(p.Owner.Boot().Live.Protection.Keys) == 0 || !p.Kernel() {
		return nil
	}
	cgroup, err := p.cgroup()
	if err != nil {
		return nil // nothing was protected from here
	}
	defer cgroup.Close() // only read
	if err := bpf.Exempt(cgroup, pid); err != nil {
		return fmt.Errorf("exempt process %d from protection: %w", pid, err)
	}
	return nil
}

// Protect has the kernel refuse writes of some parameters and no longer of others. What it
// may protect is on disk before it is asked, so the next process knows what to lift.
func (p *Protection) Protect(keys []string) error {
	if !p.Kernel() {
		return nil
	}
	had := p.Owner.Boot().Live.Protection
	cgroup, err := p.cgroup()
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
	if err := p.Owner.Note(func(l *state.Live) { l.Protection.Keys = slices.Compact(both) }); err != nil {
		return err
	}
	if err := bpf.Protect(cgroup, keys); err != nil {
		return fmt.Errorf("%w (it needs Linux 6.1 and cgroup v2)", err)
	}
	err = p.Owner.Note(func(l *state.Live) {
		l.Protection.Keys = keys
		l.Refused = slices.DeleteFunc(l.Refused, func(r spec.RefusedWrite) bool { return !slices.Contains(keys, r.Key) })
	})
	for _, key := range both {
		was, is := had.Trouble == "" && slices.Contains(had.Keys, key), slices.Contains(keys, key)
		switch {
		case is && !was:
			p.Log("protected", events.With("item", "sysctl"), events.With("key", rules.SysctlName(key)))
		case was && !is:
			p.Log("lifted", events.With("item", "sysctl"), events.With("key", rules.SysctlName(key)))
		}
	}
	return err
}

// Lift has the kernel refuse nothing any more, until the next run. Values stay.
func (p *Protection) Lift() error { return p.Protect(nil) }

// Protected are the parameters of which the kernel refuses writes, as paths.
func (p *Protection) Protected() []string {
	asked := p.Owner.Boot().Live.Protection
	if asked.Trouble != "" {
		return nil
	}
	return asked.Keys
}

// Bounds of what is said of refused writes: programs by parameter in a status, and for
// how long one that goes on trying has one record.
const (
	maxRefused  = 16
	refusedEach = time.Minute
)

// NoteRefused writes down which writes the kernel has refused.
func (p *Protection) NoteRefused(list []spec.RefusedWrite) error {
	live := p.Owner.Boot().Live
	for _, r := range list {
		if !slices.Contains(p.Protected(), r.Key) {
			continue // it was lifted meanwhile
		}
		last := time.Time{}
		if i := slices.IndexFunc(live.Refused, func(o spec.RefusedWrite) bool {
			return o.Key == r.Key &&
				program(o.Rival) == program(r.Rival)
		}); i >= 0 {
			last = live.Refused[i].At
			r.Count += live.Refused[i].Count
			live.Refused = slices.Delete(live.Refused, i, i+1)
		}
		live.Refused = append(live.Refused, r)
		live.Refused = live.Refused[max(0, len(live.Refused)-maxRefused):]
		if !r.At.Truncate(refusedEach).Equal(last.Truncate(refusedEach)) {
			p.Log("refused", events.With("item", "sysctl"), events.With("key", rules.SysctlName(r.Key)),
				events.With("to", r.Value), events.With("count", r.Count), events.With("rival", r.Rival), events.With("why", "it is protected"))
		}
	}
	return p.Owner.Note(func(l *state.Live) { l.Refused = live.Refused })
}

// program is a rival without the number of its process: one that is started again and
// again is the same.
func program(rival string) string {
	before, rest, _ := strings.Cut(rival, " (pid ")
	_, after, _ := strings.Cut(rest, ")")
	return before + after
}
