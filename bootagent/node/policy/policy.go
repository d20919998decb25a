// SPDX-License-Identifier: Apache-2.0

// Package policy decides what is done about drift: what somebody changed on a node
// since it was set.
//
// The overlay says what to do about which setting, [spec.Enforcement]: set it again, or leave it
// and report it, or have the kernel refuse that others write it, see [Protection]. Who sets a
// setting again that another program keeps changing fights without end, so a correction costs of a
// budget, [spec.Budget]: five of one setting within ten minutes where nothing else is said. After
// them the setting is quarantined: it is looked at and reported, and not
// touched until an operator clears it, or the overlay wants another value of it, or has
// no such setting any more. The book of that is in the state directory, written before
// the correction is made, so that neither a restart of the agent nor its death resets it.
//
// The package knows no kinds and sets nothing; a [Keeper] is the Guard of package items.
// Only bootagent/node, bootagent/node/effect and bootagent/node/look import it.
package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/sense/watch/bpf"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Keeper judges drift at one moment.
type Keeper struct {
	Rule  func(item, key string) spec.Enforcement // with a budget
	Late  func(item, key string) string           // why nothing is set now, "" where it is; may be nil
	Book  *Book
	Fresh func(item, key string) bool    // it was never set, for it could not be
	Rival func(d spec.Drift) string      // who made it so; "" or nil: nobody knows
	Now   time.Time                      // for people
	Up    time.Duration                  // since the kernel's start, for the budget
	Began func(quarantined []spec.Drift) // receives each new quarantine; may be nil
}

// Judge returns a drift as it is to be treated: as it is where it is to be corrected.
// What was never set waits where it is late, whatever the policy is.
func (k *Keeper) Judge(d spec.Drift, fresh bool) spec.Drift {
	if d.Action != spec.ActionAdd && d.Action != spec.ActionChange {
		return d
	}
	fresh = fresh || k.Fresh != nil && k.Fresh(d.Item, d.Key)
	if fresh && k.Late != nil {
		if why := k.Late(d.Item, d.Key); why != "" {
			d.Action, d.Reason = spec.ActionDefer, why
			return d
		}
	}
	r := k.Book.find(d.Item, d.Key)
	if r != nil && r.Want != d.To {
		k.Book.pages.Keys = slices.DeleteFunc(k.Book.pages.Keys, func(h *history) bool { return h.Item == d.Item && h.Key == d.Key })
		k.Book.dirty, r = true, nil
	}
	if fresh {
		return d
	}
	if d.Rival == "" && k.Rival != nil {
		d.Rival = k.Rival(d)
	}
	d.Rival = cmp.Or(d.Rival, spec.RivalUnknown)
	rule := k.Rule(d.Item, d.Key)
	switch {
	case rule.Policy == spec.PolicyReport:
		d.Action = spec.ActionReport
	case r == nil:
	case !r.Quarantined.IsZero():
		d = r.onto(d)
	case int64(len(k.recent(r))) >= k.budget(d.Item, d.Key).Corrections:
		r.Quarantined, r.Count, k.Book.dirty = k.Now.UTC().Truncate(time.Second), len(k.recent(r)), true
		d = r.onto(d)
		if k.Began != nil {
			k.Began([]spec.Drift{d})
		}
	}
	return d
}

// onto tells of a drift that it is quarantined.
func (r *history) onto(d spec.Drift) spec.Drift {
	d.Action, d.Since, d.Count = spec.ActionQuarantine, r.Quarantined, r.Count
	if d.Rival == spec.RivalUnknown && r.Rival != "" {
		d.Rival = r.Rival
	}
	return d
}

// Held lists the quarantined settings of a kind that are not in its drift: they are as
// wanted, and would not be corrected.
func (k *Keeper) Held(item string, drift []spec.Drift) (held []spec.Drift) {
	for _, r := range k.Book.pages.Keys {
		if r.Item == item && !r.Quarantined.IsZero() && k.Rule(r.Item, r.Key).Policy == spec.PolicyEnforce &&
			!slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Key == r.Key }) {
			held = append(held, r.drift())
		}
	}
	return held
}

// Correct takes note of corrections that are about to be made. What was never set is
// not one.
func (k *Keeper) Correct(due []spec.Drift) error {
	for _, d := range due {
		if d.Action != spec.ActionAdd && d.Action != spec.ActionChange || k.Fresh != nil && k.Fresh(d.Item, d.Key) {
			continue
		}
		r := k.Book.find(d.Item, d.Key)
		if r == nil {
			r = &history{Item: d.Item, Key: d.Key, Want: d.To}
			k.Book.pages.Keys = append(k.Book.pages.Keys, r)
		}
		r.Corrections = append(k.recent(r), k.Up)
		if d.Rival != spec.RivalUnknown {
			r.Rival = d.Rival
		}
		k.Book.dirty = true
	}
	k.Book.pages.Keys = slices.DeleteFunc(k.Book.pages.Keys, func(r *history) bool { // what does not count any more
		return r.Quarantined.IsZero() && len(k.recent(r)) == 0
	})
	return k.Book.Save()
}

// Undone takes back that a correction was made: it failed, and nobody else is to blame
// for that.
func (k *Keeper) Undone(d spec.Drift) {
	if r := k.Book.find(d.Item, d.Key); r != nil && len(r.Corrections) > 0 && r.Corrections[len(r.Corrections)-1] == k.Up {
		r.Corrections = r.Corrections[:len(r.Corrections)-1]
		k.Book.dirty = true
	}
}

// budget is that of a setting; one that the rules refuse, as without an end, is the usual
// one, whichever key signed it.
func (k *Keeper) budget(item, key string) spec.Budget {
	if b := k.Rule(item, key).Budget; b != nil && rules.Budget(*b) == nil {
		return *b
	}
	return spec.UsualBudget()
}

// recent returns the corrections that still count.
func (k *Keeper) recent(r *history) []time.Duration {
	per := time.Duration(k.budget(r.Item, r.Key).Per) * time.Second
	return slices.DeleteFunc(slices.Clone(r.Corrections), func(at time.Duration) bool { return k.Up-at >= per })
}

// maxBook caps the book, in bytes; an overlay has at most half of that.
const maxBook = 4 << 20

// Book holds the recent corrections and the quarantines.
type Book struct {
	path  string
	pages pages
	dirty bool
}

// pages is the book as it is written.
type pages struct {
	Boot    string     `json:"boot"`    // of the times of corrections
	Overlay string     `json:"overlay"` // digest of the one whose settings these are
	Keys    []*history `json:"keys"`
}

// history holds what was corrected of one setting.
type history struct {
	Item        string          `json:"item"`
	Key         string          `json:"key"`
	Want        string          `json:"want"`
	Corrections []time.Duration `json:"corrections,omitempty"` // since the kernel's start, oldest first
	Rival       string          `json:"rival,omitempty"`
	Quarantined time.Time       `json:"quarantined,omitzero"` // since when; zero: it is not
	Count       int             `json:"count,omitempty"`      // of corrections before that
}

// Open reads the book of a state directory. Boot is the identity of the running
// kernel: times of another one mean nothing, a quarantine goes on. With an error
// there is an empty book all the same.
func Open(dir, boot string) (*Book, error) {
	b := &Book{path: filepath.Join(dir, paths.Corrections), pages: pages{Boot: boot}}
	data, err := ownfiles.ReadFile(b.path, maxBook)
	if err != nil {
		return b, fault.But(err, fs.ErrNotExist)
	}
	var p pages
	if err := json.Unmarshal(data, &p); err != nil {
		return b, fmt.Errorf("read %s: %w", b.path, err)
	}
	p.Keys = slices.DeleteFunc(p.Keys, func(r *history) bool { return r == nil })
	if p.Boot != boot {
		p.Boot = boot
		for _, r := range p.Keys {
			r.Corrections = nil
		}
	}
	b.pages = p
	return b, nil
}

// Save writes the book down when it has changed.
func (b *Book) Save() error {
	if !b.dirty {
		return nil
	}
	data, err := json.Marshal(b.pages)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(b.path, data, 0o600); err != nil {
		return err
	}
	b.dirty = false
	return nil
}

// Blank reports whether no overlay is in effect: what differs from one was never set.
func (b *Book) Blank() bool { return b.pages.Overlay == "" }

// Begin says which overlay is in effect on a root that came up: under another one
// than before all settings are counted again.
func (b *Book) Begin(overlay string) error {
	if b.pages.Overlay != overlay {
		b.pages.Overlay, b.pages.Keys, b.dirty = overlay, nil, true
	}
	return b.Save()
}

// Keep says which overlay is in effect after a run that changed none of its settings.
func (b *Book) Keep(overlay string) error {
	if b.pages.Overlay != overlay {
		b.pages.Overlay, b.dirty = overlay, true
	}
	return b.Save()
}

// Move says which overlay is in effect after a live change, which kinds of settings are
// others in it, and the drift that is left. Of those kinds only what is quarantined and
// still differs stays so: the rest may be wanted otherwise now, or not at all.
func (b *Book) Move(overlay string, kinds []string, drift []spec.Drift) error {
	b.pages.Keys = slices.DeleteFunc(b.pages.Keys, func(r *history) bool {
		gone := slices.Contains(kinds, r.Item) && !slices.ContainsFunc(drift, func(d spec.Drift) bool {
			return d.Item == r.Item && d.Key == r.Key && d.Action == spec.ActionQuarantine && d.From != d.To
		})
		b.dirty = b.dirty || gone
		return gone
	})
	return b.Keep(overlay)
}

// Clear ends the quarantine of what is named, an empty key being all of a kind and an
// empty item everything, and counts its corrections again. It returns what was
// quarantined.
func (b *Book) Clear(item, key string) (ended []spec.Drift) {
	b.pages.Keys = slices.DeleteFunc(b.pages.Keys, func(r *history) bool {
		if item != "" && (r.Item != item || key != "" && r.Key != key) {
			return false
		}
		if !r.Quarantined.IsZero() {
			ended = append(ended, r.drift())
		}
		b.dirty = true
		return true
	})
	return ended
}

func (b *Book) find(item, key string) *history {
	if i := slices.IndexFunc(b.pages.Keys, func(r *history) bool { return r.Item == item && r.Key == key }); i >= 0 {
		return b.pages.Keys[i]
	}
	return nil
}

// drift is a quarantined setting that is as wanted at the moment.
func (r *history) drift() spec.Drift {
	return spec.Drift{Item: r.Item, Key: r.Key, From: r.Want, To: r.Want, Action: spec.ActionQuarantine,
		Since: r.Quarantined, Count: r.Count, Rival: cmp.Or(r.Rival, spec.RivalUnknown)}
}

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
	return fault.In(bpf.Exempt(cgroup, pid), "exempt process %d from protection", pid)
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
	if err := p.Owner.Note(func(l *record.Live) { l.Protection.Keys = slices.Compact(both) }); err != nil {
		return err
	}
	if err := bpf.Protect(cgroup, keys); err != nil {
		return fmt.Errorf("%w (it needs Linux 6.1 and cgroup v2)", err)
	}
	err = p.Owner.Note(func(l *record.Live) {
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
	return p.Owner.Note(func(l *record.Live) { l.Refused = live.Refused })
}

// program is a rival without the number of its process: one that is started again and
// again is the same.
func program(rival string) string {
	before, rest, _ := strings.Cut(rival, " (pid ")
	_, after, _ := strings.Cut(rest, ")")
	return before + after
}
