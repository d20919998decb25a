// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/bootagent/boot/kernel/kmod"
	"github.com/caisson-os/caisson/bootagent/boot/kernel/watchdog"
	"github.com/caisson-os/caisson/bootagent/boot/network"
	"github.com/caisson-os/caisson/bootagent/boot/screen"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/decide/decisions"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/trace"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// newRoot is where the stack is mounted until it becomes /.
const newRoot = "/newroot"

// boot holds the results of the stages.
type boot struct {
	console
	build      time.Time
	version    string
	devkmsg    setting
	oops       setting
	arp        []*setting                        // of the network
	watchdog   atomic.Pointer[watchdog.Hardware] // nil without one
	progress   *watchdog.Progress
	brought    spec.Bytes // by the last try to prepare a layer
	unproven   bool       // this boot must prove its generation, and is counted
	decided    decide.Observer
	transition string   // name of the decision that this boot goes by, see package decide
	words      []string // kernel command line
	proc       string   // /proc
	resolv     string   // /etc/resolv.conf
	bootstrap  spec.Bootstrap
	id         trust.Identity
	modules    *kmod.Index
	finder     *disk.Finder
	disk       string // device of the state partition, "" without one
	readOnly   error  // why the state disk cannot be written to
	failed     bool   // it could be at first
	folder     *state.Folder
	store      *layers.Store
	canCheck   func() error           // why the kernel cannot check images while they are read; nil is layers.CanCheck
	trees      *stage.Trees           // taken from the store once a boot
	whenRead   map[string]verity.Hash // roots of the images that the kernel checks while they are read
	net        *network.Network       // nil until it is made
	lease      *state.Lease           // the way to source
	source     oci.Source
	heard      bool // the registry has answered
	record     state.Boot
	noted      []spec.Event // of this boot, in the black box or on their way there
	trace      trace.Recorder
	letting    letting
	secretDir  string    // where secrets are opened; "" is the real place
	tell       Hint      // nil: nobody is told
	told       time.Time // when it was last
	limits     limits
	trial      time.Time // until when this loader has to find what to boot; zero where it is not on trial
}

// Boot runs the stages and becomes PID 1 of the new root. It does not return:
// what cannot be helped is said, and after a while the machine starts over.
func Boot(build time.Time, version string, tell Hint) {
	if err := mountBasics(); err != nil {
		fmt.Fprintln(os.Stderr, "caisson:", err)
	}
	b := &boot{console: openConsole(), build: build, version: version, devkmsg: devkmsgOn(), oops: oopsPanics(), limits: usual, proc: "/proc", resolv: "/etc/resolv.conf", tell: tell}
	b.progress = &watchdog.Progress{Limit: usual.hang, Every: 5 * time.Second, Feed: func() error { return b.watchdog.Load().Feed() }, End: b.hangs}
	if err := b.devkmsg.change(); err != nil {
		b.say("the console may lose lines: %v", err)
	}
	if err := b.oops.change(); err != nil {
		b.say("an oops does not start this machine over: %v", err)
	}
	b.armPanic("/proc")
	b.progress.Watch(b.say)
	err := b.safely(context.Background())
	b.say("the boot ends here: %v", err)
	b.lastWord(err.Error())
	const over = 30 * time.Second
	b.show(screen.Failure{Err: err, Over: over})
	b.hint(context.Background(), err.Error())
	time.Sleep(over)
	unix.Sync()
	b.settle()
	b.say("restart: %v", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
	select {} // PID 1 must not end
}

// armPanic has the kernel start over when it panics, if it was started without the
// word that says so: by an older boot file, or by hand. It stays so when the new
// root's init takes over, which may be what panics. What the command line says
// counts: panic=0 leaves a dead machine as it is.
func (b *boot) armPanic(proc string) {
	line, _ := os.ReadFile(proc + "/cmdline") // an unreadable one names nothing
	words := identity.CommandLine(string(line))
	for _, word := range spec.KernelLine(words)[len(words):] {
		if seconds, ok := strings.CutPrefix(word, "panic="); ok {
			if err := os.WriteFile(proc+"/sys/kernel/panic", []byte(seconds), 0); err != nil {
				b.say("after a panic this machine stays as it is: %v", err)
			}
		}
	}
}

// hangs ends a loader that makes no progress. Where the restart hangs too, nobody
// feeds the hardware's watchdog any more.
func (b *boot) hangs(silent time.Duration) {
	b.say("no progress for %.0f s, starting over", silent.Seconds())
	b.lastWord(fmt.Sprintf("no progress for %.0f s", silent.Seconds()))
	b.settle()
	b.say("restart: %v", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

// guard starts the hardware's watchdog, if there is one: for the loader, and for the
// new root's init to take over.
func (b *boot) guard(context.Context) error {
	timeout := identity.Seconds(b.words, "caisson.watchdog", time.Minute)
	if timeout == 0 {
		return nil
	}
	dog, err := watchdog.Open(watchdog.Device, timeout)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.say("no hardware watchdog")
		return nil
	case err != nil:
		b.say("no hardware watchdog: %v", err)
		return nil
	}
	b.watchdog.Store(dog)
	b.say("hardware watchdog, %.0f s", dog.Timeout().Seconds())
	return nil
}

// safely makes an error of a panic: PID 1 must not end.
func (b *boot) safely(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return b.run(ctx)
}

func (b *boot) run(ctx context.Context) error {
	for _, stage := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"bootstrap", b.readBootstrap},
		{"modules", b.loadModules},
		{"watchdog", b.guard},
		{"trial", b.onTrial},
		{"identity", b.identify},
		{"state", b.openState},
	} {
		b.progress.Made()
		end := b.trace.Begin(stage.name)
		err := stage.do(ctx)
		end(err)
		if err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	overlay, layer, err := b.choose(ctx)
	b.letting.shut()
	if err != nil {
		return err
	}
	return b.enter(overlay, layer)
}

func (b *boot) readBootstrap(context.Context) error {
	data, err := os.ReadFile(paths.Bootstrap)
	if err != nil {
		return fmt.Errorf("the loader was given no site.cpio: %w", err)
	}
	if err := b.takeBootstrap(data); err != nil {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	b.words = identity.CommandLine(string(line))
	b.limits = b.limits.from(b.words)
	if err := decisions.Begin(paths.RunDecisions, b.words); err != nil {
		b.say("decisions are not noted: %v", err)
	}
	b.decided = decisions.Into(paths.RunDecisions)
	b.say("loader of fleet %s, registry %s, kernel %s", b.bootstrap.Fleet, b.bootstrap.Registry, release())
	return nil
}

// takeBootstrap acts on nothing that a later release has narrowed, and says so.
func (b *boot) takeBootstrap(data []byte) (err error) {
	var notes []string
	if b.bootstrap, notes, err = spec.DecodeBootstrap(data); err != nil {
		return fmt.Errorf("read site.cpio: %w", err)
	}
	for _, note := range notes {
		b.say("site.cpio: %s", note)
	}
	return nil
}

func (b *boot) loadModules(context.Context) (err error) {
	if b.modules, err = kmod.Open(paths.ModulesDir+"/"+release(), b.words); err != nil {
		return err
	}
	for _, name := range alwaysLoaded() {
		if err := b.modules.Load(name); err != nil {
			b.say("%v", err)
		}
	}
	b.coldplug()
	return nil
}

// coldplug loads what the devices ask for that are there now, and says whether
// that was anything.
func (b *boot) coldplug() (some bool) {
	for b.modules != nil { // else they are not there yet
		n, err := b.modules.Coldplug("/sys")
		if err != nil {
			b.say("%v", err)
		}
		if n == 0 {
			break
		}
		some = true
	}
	return some
}

func (b *boot) identify(context.Context) error {
	b.id = identity.Look(b.words, "/sys")
	b.say("this machine: name %q, MACs %v, UUIDs %v", b.id.Node, b.id.MACs, b.id.UUIDs)
	return nil
}
