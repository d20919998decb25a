// SPDX-License-Identifier: Apache-2.0

// Package mounts mounts file systems on a running node, as mount(8) does, and
// takes away what it mounted.
//
// It calls mount(2) itself and judges by /proc/self/mountinfo; systemd sees the
// mounts there, so nothing is written to /etc/fstab or /etc/systemd. A changed
// option is a remount, never an unmount; a busy mount is an error, never a lazy
// unmount. Targets may lie where users write, so each is reached by package
// safepath and mounted on by its descriptor. Swap space is the other thing that disks are put to use
// for, see [Swaps]. Only bootagent/items imports it.
package mounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "mounts"

// Item keeps the wanted mounts.
type Item struct {
	want     []spec.Mount
	proc     string
	dev      string
	sbin     []string      // where the helpers of mount(8) are
	patience time.Duration // with them
	journal  item.Journal
}

// New returns the item for want; proc is /proc, dev is /dev.
func New(want []spec.Mount, proc, dev string, j item.Journal) *Item {
	want = ordered(want, func(w spec.Mount) spec.Mount { return w })
	return &Item{want: want, proc: proc, dev: dev, sbin: []string{"/sbin", "/usr/sbin"}, patience: helperTime, journal: j}
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// prior describes a target before its mount.
type prior struct {
	Made   string   `json:"made,omitempty"`   // topmost directory that had to be made
	File   bool     `json:"file,omitempty"`   // the target itself is an empty file that had to be made
	Had    bool     `json:"had,omitempty"`    // it was mounted so already, with other options:
	Flags  uintptr  `json:"flags,omitempty"`  // of the mount
	Super  []string `json:"super,omitempty"`  // of the file system
	Target string   `json:"target,omitempty"` // without symbolic links
}

// applied describes a mount that the item made.
type applied struct {
	Source string     `json:"source"`
	Mount  spec.Mount `json:"mount"`
}

// plan is a wanted mount, understood against the present system.
type plan struct {
	want    spec.Mount
	target  string // without links
	options options
	source  string
	helper  string
	now     mounted // what is mounted there, if anything
	so      bool    // and it is the wanted file system
	other   string  // the option that differs, "" when as wanted
	entry   item.Entry
	own     bool // the journal has an entry
	replace bool // what is mounted is ours, of another source or type
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	entries := item.ByKey(i.journal.Entries(Name))
	if len(i.want)+len(entries) == 0 {
		return nil, ctx.Err() // a node may have thousands of mounts that are not ours
	}
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	wanted, targets := map[string]bool{}, map[string]string{}
	for _, w := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.Target] = true
		d := spec.Drift{Item: Name, Key: w.Target, To: describe(w), Action: spec.ActionAdd}
		p, err := i.plan(w, t, entries)
		if id, twice := targets[p.target]; twice && err == nil {
			err = fmt.Errorf("%s and %s are for one target", id, w.ID)
		}
		targets[p.target] = w.ID
		if p.now.point != "" {
			d.From, d.Action = p.now.String(), spec.ActionChange
		}
		switch {
		case errors.Is(err, ErrMissingDevice):
			d.Action, d.Reason = spec.ActionDefer, err.Error()
		case err != nil:
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
		case p.so && p.other == "":
			continue
		}
		drift = append(drift, d)
	}
	for _, e := range item.Unwanted(i.journal, Name, wanted) {
		p := item.Was[prior](e)
		d := spec.Drift{Item: Name, Key: e.Key, Action: spec.ActionRemove}
		if m, ok := t.at(p.Target); ok {
			d.From = m.String()
		}
		drift = append(drift, d)
	}
	return drift, nil
}

// describe returns the text for a mount in status, logs and plan.
func describe(w spec.Mount) string {
	return strings.TrimSpace(w.Device + " " + w.Type + " " + strings.Join(redact(w.Options), ","))
}

// plan says how w stands; its error is why it cannot be done.
func (i *Item) plan(w spec.Mount, t table, entries map[string]item.Entry) (plan, error) {
	p := plan{want: w}
	err := rules.Mount(w)
	if err != nil {
		return p, err
	}
	if p.target, err = t.resolve(w.Target); err != nil {
		return p, err
	}
	if err := rules.Hides(p.target); err != nil {
		return p, err // a link leads there
	}
	p.entry, p.own = entries[w.Target]
	if p.options, err = parseOptions(w.Options); err != nil {
		return p, err
	}
	if err := p.options.numbers(); err != nil {
		return p, err
	}
	m, busy := t.at(p.target)
	if busy {
		p.now = m
	}
	if p.source, err = i.source(w, p.options); err != nil {
		return p, err
	}
	if p.options.bind == 0 {
		p.helper = i.helper(w.Type)
		if p.helper == "" && slices.Contains(spec.NetworkTypes, w.Type) {
			return p, fmt.Errorf("the program mount.%s is %w: the layer needs its package", w.Type, ErrMissingDevice)
		}
	}
	if busy {
		if p.so = is(m, w, p.options, p.source, t); !p.so {
			if p.replace = i.replaceable(p, t); p.replace {
				return p, nil
			}
			return p, fmt.Errorf("something else is mounted there: %s", m)
		}
		p.other = p.differs(t)
		return p, p.reversible()
	}
	return p, p.coverable()
}

// differs names the option that the present mount does not have.
func (p plan) differs(t table) string {
	if word, ok := p.options.holds(p.now); !ok {
		return word
	}
	if p.own {
		a := item.Did[applied](p.entry)
		if !slices.Equal(a.Mount.Options, p.want.Options) {
			return "options"
		}
		if p.helper == "" && flagsOf(p.now) != p.options.flags(p.base(t)) {
			return "flags"
		}
	}
	return ""
}

// base are the flags that the mount has without being asked: a bind inherits
// those of the mount that its source lies on.
func (p plan) base(t table) uintptr {
	if from, ok := t.holding(p.source); ok && p.options.bind != 0 {
		return flagsOf(from)
	}
	return base
}

// replaceable reports whether what is mounted was mounted there by the item when
// the config said something else.
func (i *Item) replaceable(p plan, t table) bool {
	if !p.own {
		return false
	}
	was, done := item.Was[prior](p.entry), item.Did[applied](p.entry)
	o, err := parseOptions(done.Mount.Options)
	return err == nil && !was.Had && i.ours(p.now, done, o, t)
}

// reversible refuses a change of options that could not be taken back: a value
// that a remount keeps when it is not named, and one whose original is not shown.
func (p plan) reversible() error {
	if p.other == "" || p.options.bind != 0 {
		return nil
	}
	known := unasked(p.want.Type)
	if !p.own {
		for _, word := range p.options.data {
			key, _, _ := strings.Cut(word, "=")
			if known[key] == "" && !hasKey(p.now.super, key) {
				return fmt.Errorf("option %q cannot be given to what is mounted already: the present value is not known", rules.RedactOption(word))
			}
		}
		return nil
	}
	done := item.Did[applied](p.entry)
	old, err := parseOptions(done.Mount.Options)
	if err != nil {
		return nil
	}
	for _, word := range old.data {
		key, _, _ := strings.Cut(word, "=")
		if known[key] == "" && !hasKey(p.options.data, key) {
			return fmt.Errorf("option %q cannot be taken back while it is mounted: give another value, or unmount it", rules.RedactOption(word))
		}
	}
	return nil
}

// coverable refuses to hide files, and what cannot be mounted on.
func (p plan) coverable() error {
	info, err := os.Lstat(p.target)
	if err != nil {
		return fault.But(err, fs.ErrNotExist)
	}
	if p.options.bind != 0 {
		from, err := os.Stat(p.source)
		if err == nil && from.IsDir() != info.IsDir() {
			return fmt.Errorf("of %s and %s one is a directory and one is not", p.source, p.target)
		}
		if !info.IsDir() {
			return err
		}
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", p.target)
	}
	names, err := os.ReadDir(p.target)
	if err == nil && len(names) > 0 && !p.options.shadow {
		return fmt.Errorf("%s is not empty, the mount would hide %s; option %s allows it", p.target, names[0].Name(), shadow)
	}
	return err
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	due := item.Due(drift, spec.ActionAdd, spec.ActionChange)
	var errs []error
	for _, w := range i.want {
		if !due[w.Target] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, fault.In(i.apply(ctx, w), "mount %s", cmp.Or(w.ID, w.Target)))
	}
	return errors.Join(errs...)
}
