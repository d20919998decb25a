// SPDX-License-Identifier: Apache-2.0

// Package service gives units of systemd their files from images: those that a site
// takes from git.
//
// An image is mounted below /run/caisson/service/NAME, read-only, and the link "now"
// beside it names the one that counts. The files of a service are links that lead
// through "now": one rename switches all of a service at once, and no reader ever sees files
// of two commits. A directory that is not empty cannot become a link; it is
// mounted over, and the mount of before stays for those who are in it.
//
// What was there before is kept, and restored when the service leaves. The unit waits for
// the agent when the system starts, by a drop-in, and is started, reloaded or restarted when
// its files have changed; an entry of the journal remembers that until it is done. Package items and the
// handover stage import it.
package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "service"

// Systemd holds the calls of the item to the running systemd.
type Systemd interface {
	// State says what a unit does: active, or another word.
	State(ctx context.Context, unit string) (state string, since time.Time, err error)
	// Do starts, reloads or restarts a unit and returns when that is done.
	Do(ctx context.Context, job, unit string) error
	// Reload has it read the files of units again.
	Reload(ctx context.Context) error
}

// Images are those that were fetched and verified.
type Images interface {
	// Ready says why an image cannot be mounted, nil when it can.
	Ready(image spec.Blob) error
	// Mount mounts it on a directory, read-only.
	Mount(image spec.Blob, at string) error
}

// Places say where the item acts.
type Places struct {
	Root string // that the services' paths are in
	Run  string // where images are mounted
}

// Item keeps the wanted services.
type Item struct {
	want    []spec.Service
	places  Places
	images  Images
	systemd Systemd
	journal item.Journal
	makes   item.Makes
}

// New returns the item for want; s is nil where systemd does not run.
func New(want []spec.Service, p Places, images Images, s Systemd, j item.Journal) *Item {
	return &Item{want: want, places: p, images: images, systemd: s, journal: j}
}

// WithAccounts has services wait for users who come in the same run.
func (i *Item) WithAccounts(makes item.Makes) *Item {
	i.makes = makes
	return i
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// applied holds the journal's record of a service as it was last put in effect.
type applied struct {
	Commit string `json:"commit"`
	Unit   string `json:"unit"`
	Action string `json:"action,omitempty"`
	Units  bool   `json:"units,omitempty"` // systemd reads some of its files
}

// pendingKey is the key of the entry that is in the journal until a unit has read its
// changed files.
func pendingKey(name string) string { return name + " action" }

func (i *Item) entry(key string) (item.Entry, bool) {
	e, ok := item.ByKey(i.journal.Entries(Name))[key]
	return e, ok
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	ordered := i.dropIns()
	drift, err := ordered.Check(ctx)
	if err != nil {
		return nil, err
	}
	names, paths := map[string]bool{}, map[string]bool{}
	for _, s := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		names[s.Name] = true
		for _, d := range s.Directories {
			paths[d.To] = true
		}
		if d, differs := i.compare(s); differs {
			drift = append(drift, d)
		}
	}
	for _, e := range i.journal.Entries(Name) {
		name, _ := strings.CutSuffix(e.Key, pendingKey(""))
		switch {
		case isDropIn(e.Key), paths[e.Key], names[name]:
		default:
			d := spec.Drift{Item: Name, Key: e.Key, Action: spec.ActionRemove}
			if a := item.Did[applied](e); a.Commit != "" {
				d.From = "commit " + a.Commit
			} else if p := item.Was[prior](e); strings.HasPrefix(e.Key, "/") {
				d.From, d.To = "files of a service", p.String()
			}
			drift = append(drift, d)
		}
	}
	return drift, nil
}

// compare reports what is to be done about one service.
func (i *Item) compare(s spec.Service) (d spec.Drift, differs bool) {
	d = spec.Drift{Item: Name, Key: s.Name, To: describe(s), Action: spec.ActionChange}
	v, err := i.inspect(s)
	switch {
	case errors.Is(err, errNotFetched), errors.Is(err, item.ErrNotYet):
		d.Action, d.Reason = spec.ActionDefer, err.Error()
	case err != nil:
		d.Action, d.Reason = spec.ActionRefuse, err.Error()
	case v.isInEffect():
		return d, false
	}
	switch e, known := i.entry(s.Name); {
	case !known:
		if d.Action == spec.ActionChange {
			d.Action = spec.ActionAdd
		}
	case item.Did[applied](e).Commit != s.Commit:
		d.From = "commit " + item.Did[applied](e).Commit
	default:
		d.From = v.String()
	}
	return d, true
}

// describe returns the text for a service in status and logs.
func describe(s spec.Service) string {
	to := plain.Each(s.Directories, func(d spec.ServiceDirectory) string { return d.To })
	return "commit " + s.Commit + " at " + strings.Join(to, ", ")
}

// errNotFetched says that an image has not been fetched yet.
var errNotFetched = errors.New("its image is not fetched yet")

// view is the state of a service.
type view struct {
	mounted bool     // its image is
	active  bool     // and it is the one that counts
	missing []string // places that have not its files
	pending bool     // its unit has not read its files again
}

func (v view) isInEffect() bool { return v.mounted && v.active && len(v.missing) == 0 && !v.pending }

func (v view) String() string {
	switch {
	case !v.mounted:
		return "its image is not mounted"
	case !v.active:
		return "another image"
	case len(v.missing) > 0:
		return "not at " + strings.Join(v.missing, ", ")
	}
	return "its unit has not read its files again"
}

func (i *Item) inspect(s spec.Service) (v view, err error) {
	if err := rules.Service(s); err != nil {
		return v, err
	}
	if _, err := i.owner(s.User); err != nil {
		return v, err
	}
	at := i.mountPoint(s)
	v.mounted = isMounted(at)
	if !v.mounted {
		if err := i.images.Ready(s.Image); err != nil {
			return v, fmt.Errorf("%w: %w", errNotFetched, err)
		}
	}
	active, _ := os.Readlink(filepath.Join(i.imagesDir(s.Name), activeLink)) // "" for none
	v.active = active == filepath.Base(at)
	for _, d := range s.Directories {
		has, err := i.isInstalled(s, d)
		if err != nil {
			return v, err
		}
		if !has {
			v.missing = append(v.missing, d.To)
		}
	}
	_, v.pending = i.entry(pendingKey(s.Name))
	return v, nil
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	var errs []error
	if slices.ContainsFunc(drift, func(d spec.Drift) bool { return isDropIn(d.Key) }) {
		errs = append(errs, i.dropIns().Apply(ctx, drift)) // systemd reads it when it starts, which is when it counts
	}
	for _, s := range i.want {
		if !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Key == s.Name }) {
			continue
		}
		if err := i.deploy(ctx, s); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// deploy puts the commit of a service in effect.
func (i *Item) deploy(ctx context.Context, s spec.Service) error {
	v, err := i.inspect(s)
	if err != nil || v.isInEffect() {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	entry := item.Entry{Item: Name, Key: s.Name, Prior: item.Raw(struct{}{}), Scope: item.Root,
		Applied: item.Raw(applied{s.Commit, s.Unit, s.Action, readsUnits(s)})}
	entries := []item.Entry{entry}
	if !v.pending && (!v.active || len(v.missing) > 0) {
		entries = append(entries, item.Entry{Item: Name, Key: pendingKey(s.Name), Prior: item.Raw(struct{}{}), Scope: item.Root})
	}
	if err := i.journal.Record(entries...); err != nil {
		return err
	}
	if !v.mounted {
		if err := i.mount(ctx, s); err != nil {
			return err
		}
	}
	if !v.active {
		if err := i.activate(ctx, s); err != nil {
			return err
		}
	}
	for _, d := range s.Directories {
		if err := i.install(ctx, s, d); err != nil {
			return fmt.Errorf("%s: %w", d.To, err)
		}
	}
	return i.notifyUnit(ctx, s.Name, applied{s.Commit, s.Unit, s.Action, readsUnits(s)}, true)
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var errs []error
	for _, e := range slices.Backward(entries) { // what lies deeper leaves first
		if !strings.HasPrefix(e.Key, "/") || isDropIn(e.Key) {
			continue
		}
		if err := i.restorePlace(ctx, e); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", e.Key, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Key, "/") {
			continue
		}
		if err := i.removeService(ctx, e); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			errs = append(errs, fmt.Errorf("remove service %s: %w", e.Key, err))
		}
	}
	dropIns := slices.DeleteFunc(slices.Clone(entries), func(e item.Entry) bool { return !isDropIn(e.Key) })
	return errors.Join(append(errs, i.dropIns().Restore(ctx, dropIns))...)
}

// removeService unmounts the images of a service, and has its unit read the restored files.
func (i *Item) removeService(ctx context.Context, e item.Entry) error {
	name, pending := strings.CutSuffix(e.Key, pendingKey(""))
	if !pending {
		if err := i.unmountImages(ctx, name); err != nil {
			return err
		}
		if err := i.notifyUnit(ctx, name, item.Did[applied](e), false); err != nil {
			return err
		}
	}
	return item.Forget(ctx, i.journal, e)
}

// dropIns is the item for the drop-ins that have units wait for the agent.
func (i *Item) dropIns() *files.Item {
	return files.Named(Name, Files(i.want, i.places.Root), filepath.Join(i.places.Root, "/etc"), item.Part{Journal: i.journal, In: isDropIn})
}

// active is the state of a unit that runs.
const active = "active"

// dropIn is the drop-in that has a unit wait for the agent.
const dropIn = paths.Prefix + "service"

func isDropIn(key string) bool { return strings.HasSuffix(key, "/"+dropIn+".conf") }

// Files are the drop-ins of services in a system: their units start when the agent has
// mounted what they read. A unit that the agent itself starts after has none.
func Files(want []spec.Service, root string) (out []files.Want) {
	if len(want) == 0 {
		return nil
	}
	order := units.ReadOrder(root)
	for _, s := range want {
		if rules.ServiceUnit(s.Unit) == nil && !slices.Contains(rules.WaitingUnits, s.Unit) && order.After(s.Unit, paths.AgentService) {
			out = append(out, files.Want{File: spec.File{Path: rules.UnitDropIn(s.Unit, dropIn), Content: "[Unit]\nAfter=" +
				paths.AgentService + "\n"}})
		}
	}
	return out
}

// notifyUnit has systemd and the unit read the files again, and forgets the pending entry.
// With start, a unit that does not run is started.
func (i *Item) notifyUnit(ctx context.Context, name string, a applied, start bool) error {
	if i.systemd != nil {
		if err := i.runAction(ctx, a, start); err != nil {
			return err
		}
	}
	return item.Forget(ctx, i.journal, item.Entry{Item: Name, Key: pendingKey(name)})
}

func (i *Item) runAction(ctx context.Context, a applied, start bool) error {
	if a.Units {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.systemd.Reload(ctx); err != nil {
			return err
		}
	}
	if a.Action == "" {
		return nil
	}
	state, _, err := i.systemd.State(ctx, a.Unit)
	if err != nil {
		return err
	}
	job := a.Action
	switch {
	case state != active && !start, state == active && job == spec.ServiceStart:
		return nil
	case state != active:
		job = spec.ServiceStart
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return i.systemd.Do(ctx, job, a.Unit)
}

// owner returns the numbers of a user of the system, and of its group; root's for "".
func (i *Item) owner(user string) ([2]int, error) {
	if user == "" || user == "root" {
		return [2]int{}, nil
	}
	text, err := os.ReadFile(filepath.Join(i.places.Root, "/etc/passwd"))
	if err != nil {
		return [2]int{}, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(line, ":"); len(f) > 3 && f[0] == user {
			uid, errU := strconv.Atoi(f[2])
			gid, errG := strconv.Atoi(f[3])
			return [2]int{uid, gid}, errors.Join(errU, errG)
		}
	}
	return [2]int{}, i.makes.NoAccount("/etc/passwd", user)
}
