// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/powercut"
	"github.com/caisson-os/caisson/test/traces"
)

// victim is a machine with a state disk: a directory is its root, and what is below
// paths.State its disk. A loader and an agent run on it as on a real one, but for what
// takes another kernel, a network or mounts.
type victim struct {
	t    testing.TB
	root string
	p    *published
	dead bool // its registry
	mu   sync.Mutex
	said []string

	checks  bool     // its kernel checks images while they are read
	corrupt []string // digests of those in which it has found a wrong block

	ill   bool // its disk may have trouble
	tries int  // after which a loader is taken to choose nothing; 0: only its time ends it
}

// checks of an overlay.
const (
	never = iota + 1
	always
)

const swappiness = "/proc/sys/vm/swappiness"

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{t: t, root: inMemory(t), p: publish(t)}
	data, err := spec.Encode(v.p.Bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.root+"/bootstrap.json", data, 0o600); err != nil {
		t.Fatal(err)
	}
	v.powerOn()
	if err := os.MkdirAll(v.root+paths.State, 0o700); err != nil { // where the disk is mounted
		t.Fatal(err)
	}
	return v
}

// inMemory is a directory where fsync(2) costs nothing: the model says what it does.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "caisson-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // memory that the next start of the machine gives back
	return dir
}

// powerOn makes what a kernel has when it starts, and a layer.
func (v *victim) powerOn() {
	v.t.Helper()
	for name, text := range map[string]string{swappiness: "60\n", "/proc/cmdline": "quiet\n", "/proc/self/mountinfo": "",
		"/etc/security/limits.d/x": "", "/dev/x": "", paths.Run + "/x": "", "/always": "", "/lib/x": "", "/sys/x": ""} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(v.root+name), 0o755), os.WriteFile(v.root+name, []byte(text), 0o644)); err != nil {
			v.t.Fatal(err)
		}
	}
}

// publish signs a generation of a layer, by whose number its one setting can be told.
func (v *victim) publish(generation uint64, layer string, checks int) {
	v.t.Helper()
	o := spec.Overlay{Core: spec.Core{Layer: v.p.layer(imageOf(layer)).Overlay.Layer}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: fmt.Sprint(generation)}}}}
	if checks != 0 {
		o.Gates = &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: map[int]string{never: "/never", always: "/always"}[checks], Timeout: 1, Interval: 1}}}
	}
	v.p.Overlay(o, sign.Predicate{Generation: generation})
	v.p.Current(spec.Fleet{}, fixture.Now())
}

// imageOf is the image of a layer: 25 blocks.
func imageOf(layer string) string { return strings.Repeat(layer, 25*verity.Block) }

// runs publishes a generation and has it prove itself.
func (v *victim) runs(generation uint64, layer string) {
	v.t.Helper()
	v.publish(generation, layer, 0)
	v.do("boot")
}

// recordedVictim is powercut.Recorded, in another boot than that of this process.
func recordedVictim(t *testing.T) (words []string, is bool) {
	t.Helper()
	if powercut.IsRecorded() && os.Geteuid() == 0 {
		id := filepath.Join(t.TempDir(), "boot_id")
		err := os.WriteFile(id, []byte("00000000-0000-4000-8000-000000000000\n"), 0o444)
		if err = errors.Join(err, unix.Mount(id, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
	}
	return powercut.Recorded(t)
}

func topOf(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

func (v *victim) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = append(v.said, fmt.Sprintf(format, args...))
}

// all returns the output until now.
func (v *victim) all() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.said, "\n")
}

// do does several things after another.
func (v *victim) do(acts string) {
	v.t.Helper()
	for act := range strings.SplitSeq(acts, ",") {
		if err := v.act(act); err != nil {
			v.t.Fatalf("%s: %v\n%s", act, err, v.all())
		}
	}
}

func (v *victim) act(act string) error {
	switch act {
	case "boot":
		_, err := v.boot()
		return err
	case "judge":
		_, err := v.judge()
		return err
	}
	_, err := v.node(func(ctx context.Context, n *node.Node) (*spec.Status, error) {
		switch act {
		case "sync":
			return n.Sync(ctx)
		case "stage":
			return nil, n.Stage(ctx)
		case "rollback":
			return n.Rollback(ctx, "a person says so", 0)
		case "forward":
			if err := n.Forward(""); err != nil {
				return nil, err
			}
			return n.Sync(ctx)
		case "pause":
			return nil, n.Pause("a person says so", 0)
		case "resume":
			return nil, n.Resume()
		}
		return nil, fmt.Errorf("%q is not an act", act)
	})
	return err
}

// boot is a loader and the agent's first run. It returns the generation that runs.
func (v *victim) boot() (*spec.Status, error) {
	if err := os.RemoveAll(v.root + "/run"); err != nil {
		return nil, err
	}
	v.powerOn()
	b, err := v.loader()
	if err != nil {
		return nil, fmt.Errorf("loader: %w", err)
	}
	if err := record.SaveBoot(v.root+paths.RunBoot, &b.record); err != nil {
		return nil, err
	}
	return v.node(func(ctx context.Context, n *node.Node) (*spec.Status, error) { return n.Apply(ctx) })
}

// loader does what Boot does once the disk is mounted, until a root would be entered.
func (v *victim) loader() (*boot, error) {
	tries, vain := 0, make(chan struct{})
	says := func(line string) {
		v.say("loader: %s", line)
		if strings.Contains(line, "tries again") { // which only who chooses says
			if tries++; tries == v.tries {
				close(vain)
			}
		}
	}
	b := newBoot(screen.Console{W: writer(says)}, machine{id: trust.Identity{Node: fixture.Node}, limits: usual}, nil)
	b.chooser.decided = traces.Into()
	b.machine.limits.pause, b.machine.limits.ask, b.machine.limits.soon = 50*time.Millisecond, 20*time.Second, 20*time.Second
	data, err := os.ReadFile(v.root + "/bootstrap.json")
	if err != nil {
		return nil, err
	}
	if err := spec.Decode(data, &b.machine.bootstrap); err != nil {
		return nil, err
	}
	at := v.root + paths.State
	b.disk.finder = &disk.Finder{Fleet: b.machine.bootstrap.Fleet, Machine: "5e7f", Say: b.disk.trouble}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	if err := b.disk.finder.Sweep(at); err != nil {
		return nil, err
	}
	if err := b.disk.useFolder(at, at+"/store"); err != nil {
		return nil, err
	}
	b.disk.device = "/dev/vda1"
	b.disk.canCheck = func() error {
		if !v.checks {
			return errors.New("the kernel has no dm-verity")
		}
		return nil
	}
	if err := b.disk.finder.Claim(at); err != nil {
		return nil, err
	}
	if len(b.disk.troubles) > 0 && !v.ill {
		return nil, fmt.Errorf("the disk: %s", strings.Join(b.disk.troubles, "; "))
	}
	if b.ways.source, err = track.Open(b.machine.bootstrap, track.Way{}); err != nil || v.dead {
		b.ways.source = silent{}
	}
	ended := make(chan error, 1)
	go func() {
		var err error
		b.choice, err = b.chooser.choose(context.Background())
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-vain:
		err = fmt.Errorf("it chose nothing in %d tries", v.tries)
	case <-time.After(5 * time.Minute):
		err = errors.New("it chose nothing in time")
	}
	if err == nil {
		b.attempt.begin(b.choice.generation, b.ways.heard)
		b.record = b.begunRecord()
		b.record.Node, b.record.RootID, b.record.DiskTrouble = fixture.Node, fmt.Sprint("root", time.Now().UnixNano()), b.disk.troubles
	}
	return b, err
}

// silent is a registry that cannot be reached.
type silent struct{}

var errSilent = errors.New("no route to host")

func (silent) Manifest(context.Context, string, string, string) (oci.Response, error) {
	return oci.Response{}, errSilent
}

func (silent) Blob(context.Context, string, oci.Descriptor, int64) (io.ReadCloser, error) {
	return nil, errSilent
}

type writer func(string)

func (w writer) Write(p []byte) (int, error) { w(string(bytes.TrimSpace(p))); return len(p), nil }

func (v *victim) options() session.Options {
	return session.Options{Root: v.root, By: session.Service, Decided: traces.Into(), Corrupt: func() ([]string, error) { return v.corrupt, nil }, Say: func(format string, args ...any) { v.say("agent: "+format, args...) },
		Fetch: func(b spec.Bootstrap, way track.Way) (oci.Source, error) {
			if v.dead {
				return nil, errSilent
			}
			return track.Open(b, way)
		}}
}

func (v *victim) node(do func(context.Context, *node.Node) (*spec.Status, error)) (*spec.Status, error) {
	var b spec.Bootstrap
	data, err := os.ReadFile(v.root + "/bootstrap.json")
	if err == nil {
		err = spec.Decode(data, &b)
	}
	if err != nil {
		return nil, err
	}
	n, err := node.Open(context.Background(), v.options(), &b)
	if err != nil {
		return nil, err
	}
	st, err := do(context.Background(), n)
	return st, errors.Join(err, n.Close())
}

// judge looks until there is nothing to judge any more, and reports whether a reboot is
// asked for.
func (v *victim) judge() (reboots bool, err error) {
	var b spec.Bootstrap
	data, err := os.ReadFile(v.root + "/bootstrap.json")
	if err == nil {
		err = spec.Decode(data, &b)
	}
	o := v.options()
	o.Reboot = func(context.Context) error { reboots = true; return nil }
	for err == nil && !reboots {
		var wait time.Duration
		if wait, _, err = node.Judge(context.Background(), o, &b); wait == 0 {
			break
		}
	}
	return reboots, err
}

// survives boots what a cut has left, without a network and with one.
func (v *victim) survives(c crash, cut powercut.Cut) error {
	again, err := v.after(cut)
	if err != nil {
		return err
	}
	good, err := again.hasGood()
	if err != nil {
		return err
	}
	if good || !c.first {
		again.dead = true
		st, err := again.boot()
		if err == nil {
			err = again.runsOne(st, c.may)
		}
		if v.hears(again); err != nil {
			return fmt.Errorf("without a network: %w", err)
		}
	}
	if again, err = v.after(cut); err != nil {
		return err
	}
	err = again.settles(c.ends)
	v.hears(again)
	return err
}

func (v *victim) hears(of *victim) {
	text := of.all()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = []string{text}
}

// after is the machine with what a cut has left on its disk.
func (v *victim) after(cut powercut.Cut) (*victim, error) {
	again := &victim{t: v.t, root: v.root + "-again", p: v.p}
	data, err := os.ReadFile(v.root + "/bootstrap.json")
	if err == nil {
		err = os.RemoveAll(again.root)
	}
	if err == nil {
		again.powerOn()
		v.t.Cleanup(func() { _ = os.RemoveAll(again.root) }) // as inMemory
		err = errors.Join(os.WriteFile(again.root+"/bootstrap.json", data, 0o600), os.MkdirAll(filepath.Dir(again.root+paths.State), 0o755))
	}
	if err == nil {
		err = cut.Tree.Write(again.root + paths.State)
	}
	return again, err
}

// hasGood reports whether the disk says that something ran well.
func (v *victim) hasGood() (bool, error) {
	s, err := state.View(v.root + paths.State).Load()
	if errors.Is(err, state.ErrDamaged) {
		return false, err
	}
	return err == nil && s.Current != nil, nil
}

// settles boots and runs the machine until it has nothing to do any more.
func (v *victim) settles(ends []uint64) error {
	for range 4 {
		if _, err := v.boot(); err != nil {
			return err
		}
		if err := v.act("sync"); err != nil {
			return err
		}
		reboots, err := v.judge()
		if err != nil {
			return err
		}
		b, err := record.LoadBoot(v.root + paths.RunBoot)
		if err != nil {
			return err
		}
		if !reboots && !strings.Contains(b.SyncDetail, "waits for a reboot") {
			break
		}
	}
	st, err := v.node(func(ctx context.Context, n *node.Node) (*spec.Status, error) { return n.Apply(ctx) })
	if err == nil {
		err = v.runsOne(st, ends)
	}
	if err == nil {
		err = v.whole()
	}
	return err
}

// runsOne holds that one of the generations is in effect, whole, and that the memory is.
func (v *victim) runsOne(st *spec.Status, may []uint64) error {
	value, err := os.ReadFile(v.root + swappiness)
	if err != nil {
		return err
	}
	folder := state.View(v.root + paths.State)
	switch s, err := folder.Load(); {
	case err != nil:
		return err
	case !slices.Contains(may, st.Generation):
		return fmt.Errorf("generation %d runs, want one of %d", st.Generation, may)
	case strings.TrimSpace(string(value)) != fmt.Sprint(st.Generation):
		return fmt.Errorf("generation %d runs with %q", st.Generation, value)
	case len(st.Drift) > 0 && st.Rejected == nil || len(st.Drift) > 1 || st.Health != spec.HealthOK && st.Rejected == nil:
		return fmt.Errorf("generation %d is %s, drift %+v", st.Generation, st.Health, st.Drift)
	case len(s.Lost) > 0 || folder.Damage() != nil:
		return fmt.Errorf("the memory is damaged: %q, %w", s.Lost, folder.Damage())
	}
	return nil
}

// whole holds that nothing half made is on the disk.
func (v *victim) whole() error {
	at := v.root + paths.State
	return filepath.WalkDir(at, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		switch base := d.Name(); {
		case err != nil:
			return err
		case strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".partial"):
			return fmt.Errorf("%s is left over", name)
		case filepath.Dir(name) == at+"/store/sha256" && digest.Of(data) != digest.FromHex(base):
			return fmt.Errorf("%s is another content", name)
		}
		return nil
	})
}
