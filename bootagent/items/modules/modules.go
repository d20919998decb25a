// SPDX-License-Identifier: Apache-2.0

// Package modules loads kernel modules, sets their parameters and keeps modules
// from being loaded by themselves, as modules-load.d(5) and modprobe.d(5) say.
//
// Two files hold all of it, written before PID 1 starts, so that a boot needs
// nothing else. On a running node what is missing is loaded by systemd, since the
// agent may not load modules itself, and parameters that the kernel lets be
// changed are changed. Nothing is unloaded. Package items and the handover stage
// import it.
package modules

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "modules"

// Systemd runs a job of a unit and returns when it is done.
type Systemd interface {
	Do(ctx context.Context, job, unit string) error
}

// Item keeps modules loaded, their parameters and their files.
type Item struct {
	want       spec.Modules
	files      *files.Item
	parameters *tunable.Item
	kernel     kernel
	systemd    Systemd
}

// Places are the directories that the item acts on: /etc, /sys, /proc and /lib.
type Places struct{ Etc, Sys, Proc, Lib string }

// New returns the item for want, nil for nothing. Without a systemd, modules are
// not loaded on a running node.
func New(want *spec.Modules, at Places, s Systemd, j item.Journal) *Item {
	want = cmp.Or(want, new(spec.Modules))
	ofFile := func(key string) bool { return strings.HasPrefix(key, "/") }
	k := kernel{sys: at.Sys, proc: at.Proc, lib: at.Lib}
	settings := plain.Each(want.Parameters, func(p spec.ModuleParameter) tunable.Setting {
		return tunable.Setting{Key: p.Module + "/" + p.Name, Value: p.Value, Optional: true, Invalid: rules.ModuleParameter(p)}
	})
	kind := tunable.Kind{Name: Name, Files: k, Coupled: func(string) []string { return nil }, Same: same,
		Fixed: "the module has read it; it acts when the module is loaded again, or after a reboot"}
	return &Item{want: *want, kernel: k, systemd: s,
		files:      files.Named(Name, Files(want), at.Etc, item.Part{Journal: j, In: ofFile}),
		parameters: tunable.New(kind, settings, item.Part{Journal: j, In: func(key string) bool { return !ofFile(key) }}),
	}
}

// Files are the files that say to systemd and modprobe(8) what is wanted.
func Files(want *spec.Modules) []files.Want {
	if want == nil || rules.Modules(*want) != nil { // which Check refuses
		return nil
	}
	var load, conf strings.Builder
	for _, name := range want.Load {
		fmt.Fprintln(&load, name)
	}
	for _, p := range want.Parameters {
		if rules.ModuleParameter(p) != nil {
			continue // Check refuses it
		}
		fmt.Fprintf(&conf, "options %s %s=%s\n", p.Module, p.Name, p.Value)
	}
	for _, name := range want.Blacklist {
		fmt.Fprintf(&conf, "blacklist %s\n", name)
	}
	both := []spec.File{{Path: rules.ModulesLoadFile, Content: load.String()}, {Path: rules.ModprobeFile, Content: conf.String()}}
	return plain.Pick(both, func(f spec.File) (files.Want, bool) { return files.Want{File: f}, f.Content != "" })
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int {
	return len(i.want.Load) + len(i.want.Parameters) + len(i.want.Blacklist)
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	drift, err := i.files.Check(ctx)
	if err != nil {
		return nil, err
	}
	if err := rules.Modules(i.want); err != nil {
		return append(drift, spec.Drift{Item: Name, Key: "lists", Action: spec.ActionRefuse, Reason: err.Error()}), nil
	}
	for _, name := range i.want.Load {
		if d, ok := i.missing(name); ok {
			drift = append(drift, d)
		}
	}
	for _, name := range i.want.Blacklist {
		// What is built in cannot be unloaded, and has no count of its users.
		if _, err := os.Stat(filepath.Join(i.kernel.sys, "module", name, "refcnt")); err == nil {
			drift = append(drift, spec.Drift{Item: Name, Key: name, From: "loaded", Action: spec.ActionDefer,
				Reason: "it was loaded before it was kept from that; it is gone after a reboot"})
		}
	}
	parameters, err := i.parameters.Check(ctx)
	return append(drift, parameters...), err
}

// missing says what is to be done for a module that is not there.
func (i *Item) missing(name string) (spec.Drift, bool) {
	d := spec.Drift{Item: Name, Key: name, To: "loaded", Action: spec.ActionAdd}
	switch there, err := i.kernel.loaded(name); {
	case there:
		return d, false
	case err != nil:
		d.Action, d.Reason = spec.ActionDefer, err.Error()
	case i.systemd == nil:
		d.Action, d.Reason = spec.ActionDefer, "systemd, which loads modules, does not run"
	}
	return d, true
}

// Apply implements item.Item. Files come first: options are read when a module is
// loaded.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	errs := []error{i.files.Apply(ctx, drift)}
	for _, d := range drift {
		if d.Action != spec.ActionAdd || !slices.Contains(i.want.Load, d.Key) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, fault.In(i.load(ctx, d.Key), "load module %q", d.Key))
	}
	parameters := slices.DeleteFunc(slices.Clone(drift), func(d spec.Drift) bool {
		return !strings.Contains(d.Key, "/") || strings.HasPrefix(d.Key, "/")
	})
	return errors.Join(append(errs, i.parameters.Apply(ctx, parameters))...)
}

// load asks systemd, whose unit does not name a module that cannot be loaded.
func (i *Item) load(ctx context.Context, name string) error {
	if err := i.systemd.Do(ctx, "start", "modprobe@"+name+".service"); err != nil {
		return err
	}
	there, err := i.kernel.loaded(name)
	if err == nil && !there {
		err = errors.New("modprobe ran, and the kernel does not have it; the kernel's log says why")
	}
	return err
}

// Remember journals parameters that are as wanted already, as other values of the
// kernel are.
func (i *Item) Remember(ctx context.Context) error { return i.parameters.Remember(ctx) }

// Restore implements item.Item. A module that was loaded stays: what uses it by now
// is not known.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var written, set []item.Entry
	for _, e := range entries {
		if strings.HasPrefix(e.Key, "/") {
			written = append(written, e)
		} else {
			set = append(set, e)
		}
	}
	return errors.Join(i.files.Restore(ctx, written), i.parameters.Restore(ctx, set))
}

// kernel names the places where the running kernel shows its modules, and where the layer has files
// for it.
type kernel struct{ sys, proc, lib string }

// loaded reports whether a module is in the kernel, loaded or built in. The error
// says that it cannot be loaded: the layer does not have it.
func (k kernel) loaded(name string) (bool, error) {
	if _, err := os.Stat(filepath.Join(k.sys, "module", name)); err == nil {
		return true, nil
	}
	release, err := os.ReadFile(filepath.Join(k.proc, "sys/kernel/osrelease"))
	if err != nil {
		return false, nil // a look that cannot be taken forbids nothing
	}
	dir := filepath.Join(k.lib, "modules", strings.TrimSpace(string(release)))
	if found, err := lists(filepath.Join(dir, "modules.builtin"), name); found || err != nil {
		return found, nil
	}
	if found, err := lists(filepath.Join(dir, "modules.dep"), name); found || err != nil {
		return false, nil
	}
	return false, fmt.Errorf("there is no such module for kernel %s", strings.TrimSpace(string(release)))
}

// lists reports whether a file of depmod(8) has a module, whose name may be spelled
// with hyphens there.
func lists(file, name string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close() // read only
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		at, _, _ := strings.Cut(lines.Text(), ":")
		base, _, _ := strings.Cut(path.Base(at), ".ko")
		if strings.ReplaceAll(base, "-", "_") == name {
			return true, nil
		}
	}
	return false, lines.Err()
}

// file is the path of a parameter: its key is module and name.
func (k kernel) file(key string) string {
	module, name, _ := strings.Cut(key, "/")
	return filepath.Join(k.sys, "module", module, "parameters", name)
}

// maxValue caps what is read of one parameter: sysfs gives a page at most.
const maxValue = 64 << 10

var _ tunable.Files = kernel{}

// Read implements tunable.Files.
func (k kernel) Read(key string) (string, error) {
	data, err := ownfiles.ReadPublic(k.file(key), maxValue)
	return strings.TrimRight(string(data), "\n"), err
}

// Write implements tunable.Files.
func (k kernel) Write(key, value string) error {
	f, err := os.OpenFile(k.file(key), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// Writable implements tunable.Files.
func (k kernel) Writable(key string) bool {
	info, err := os.Stat(k.file(key))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o222 != 0
}

// Owner implements tunable.Files: a module that was loaded again has new files.
func (k kernel) Owner(key string) uint64 {
	var st unix.Stat_t
	if unix.Stat(k.file(key), &st) != nil {
		return 0
	}
	return st.Ino
}

// same reports whether two values of a parameter mean the same. The kernel shows
// yes and no as Y and N, and takes more words for them.
func same(_, a, b string) bool {
	yesNo := func(s string) string {
		switch s {
		case "1", "y", "Y", "on":
			return "Y"
		case "0", "n", "N", "off":
			return "N"
		}
		return s
	}
	if a == "Y" || a == "N" || b == "Y" || b == "N" {
		return yesNo(a) == yesNo(b)
	}
	return tunable.Same(a, b)
}
