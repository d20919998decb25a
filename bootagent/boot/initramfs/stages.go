// SPDX-License-Identifier: Apache-2.0

// Package initramfs is the agent as /init: from a kernel with nothing mounted to
// a stacked, configured root whose PID 1 is systemd.
//
// The stages are one list, which docs/design.md shows. What comes of them goes into the boot record
// that the service reads. It says what it does on the console, and on a refusal why.
//
// A stage either succeeds, falls back to the last good overlay, or says what is
// wrong and tries again: a node that cannot prove what it should be runs nothing.
// Whatever waits has a deadline, see [limits], and a loader that makes no progress
// starts the machine over.
// The loader never opens a shell. It follows bootup(7) and switch_root(8); only
// cmd/caisson-agent imports it.
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
	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// newRoot is where the stack is mounted until it becomes /.
const newRoot = "/newroot"

// bootStage is a step of a boot: of what the stages before it gave it makes what it gives. Names are
// those of the fields of [boot], [machine] and [chooser], separated by spaces.
type bootStage struct {
	name, needs, gives string
	does               string // for people
	run                func(*boot, context.Context) error
	quiet              bool // is no step of the boot record's trace: its parts are, or its errors say where they come from
}

// stages lists the stages of a boot, in their order.
var stages = []bootStage{
	{"bootstrap", "", "words bootstrap limits decided", "reads `site.cpio` and the kernel's arguments", (*boot).readBootstrap, false},
	{"modules", "words", "modules", "loads modules by modalias", (*boot).loadModules, false},
	{"watchdog", "words", "watchdog", "starts the hardware's watchdog", (*boot).guard, false},
	{"trial", "words limits modules", "trial", "asks the firmware whether this loader is on trial", (*boot).onTrial, false},
	{"identity", "words", "id", "reads the machine's MACs and UUIDs", (*boot).identify, false},
	{"state", "words bootstrap id", "disk notes", "opens the [state disk](state-disk.md), or memory", (*boot).openState, false},
	{"choice", "words bootstrap limits decided modules trial id disk notes", "ways attempt choice",
		"finds what to run, as below", (*boot).choose, true},
	{"attempt", "words disk ways choice", "attempt", "counts the boot of an unproved generation", (*boot).count, true},
	{"measure", "choice", "", "tells the machine's TPM what is entered", (*boot).measure, false},
	{"root", "limits id watchdog disk ways attempt choice", "record", "mounts the images, hands over", (*boot).makeRoot, true},
	{"policy", "choice", "", "loads AppArmor binaries, when the kernel has all that they were compiled for", (*boot).loadPolicy, false},
	{"record", "bootstrap id disk attempt choice record", "", "writes what the agent reads", (*boot).leaveRecord, true},
	{"switch", "watchdog disk notes ways record", "", "`switch_root`, to systemd", (*boot).enter, true},
}

// boot holds the results of the stages.
type boot struct {
	console  screen.Console
	settings []*kernel.Setting               // that the loader changes for itself
	watchdog atomic.Pointer[kernel.Watchdog] // nil without one
	progress *kernel.WatchdogProgress
	trace    uptime.Recorder
	machine  *machine
	disk     *stateDisk
	notes    *notes
	ways     *ways
	attempt  *attempt
	chooser  *chooser
	choice   *choice
	log      *tpm.Log
	record   record.Boot
}

// newBoot returns a boot before its first stage: what its parts are to know is not known yet.
func newBoot(c screen.Console, m machine, tell Hint) *boot {
	b := &boot{console: c, machine: &m}
	feed := func() error { return b.watchdog.Load().Feed() }
	b.progress = &kernel.WatchdogProgress{Limit: usual.hang, Every: 5 * time.Second, Feed: feed, End: b.hangs}
	m.say = b.say
	b.log = tpm.LogOf("", b.say)
	b.disk = &stateDisk{say: b.say, made: b.progress.Made, opened: func() { b.notes.lookBack(events.PStore); b.disk.unlock() }, machine: &m}
	b.notes = &notes{say: b.say, machine: &m, disk: b.disk}
	b.ways = &ways{say: b.say, resolv: "/etc/resolv.conf", machine: &m, disk: b.disk}
	b.attempt = &attempt{say: b.say, machine: &m, disk: b.disk}
	help := &help{say: b.say, shell: shell, tell: tell, machine: &m, disk: b.disk, ways: b.ways}
	prep := &preparer{say: b.say, made: b.progress.Made, trace: &b.trace,
		machine: &m, disk: b.disk, notes: b.notes, ways: b.ways, attempt: b.attempt, log: b.log}
	b.chooser = &chooser{say: b.say, made: b.progress.Made, trace: &b.trace,
		machine: &m, disk: b.disk, notes: b.notes, ways: b.ways, attempt: b.attempt, prep: prep, help: help}
	return b
}

func (b *boot) say(format string, args ...any) { b.console.Say(format, args...) }

// Boot runs the stages and becomes PID 1 of the new root. It does not return:
// what cannot be helped is said, and after a while the machine starts over.
func Boot(build time.Time, version string, tell Hint) {
	if err := mountBasics(); err != nil {
		fmt.Fprintln(os.Stderr, "caisson:", err)
	}
	b := newBoot(screen.OpenConsole(), machine{build: build, version: version, proc: "/proc", variables: efivar.Dir, limits: usual,
		epochs: tpm.Of(""), tpm: tpm.Of("")}, tell)
	// The kernel drops what is written in a hurry, and with it the reason why a machine does not boot. And
	// where it oopses nothing runs yet that could be saved: a loader whose thread is gone hangs.
	b.settings = kernel.Change(b.say,
		&kernel.Setting{File: "/proc/sys/kernel/printk_devkmsg", Value: "on", Without: "the console may lose lines"},
		&kernel.Setting{File: "/proc/sys/kernel/panic_on_oops", Value: "1", Without: "an oops does not start this machine over"})
	fault.Say(b.say, kernel.ArmPanic("/proc"))
	b.progress.Watch(b.say)
	err := b.run(context.Background(), stages)
	b.say("the boot ends here: %v", err)
	b.notes.lastWord(err.Error())
	const over = 30 * time.Second
	b.ways.show(screen.Failure{Err: err, Over: over})
	b.chooser.help.hint(context.Background(), err.Error())
	time.Sleep(over)
	unix.Sync()
	b.startOver()
	select {} // PID 1 must not end
}

// hangs ends a loader that makes no progress. Where the restart hangs too, nobody
// feeds the hardware's watchdog any more.
func (b *boot) hangs(silent time.Duration) {
	b.say("no progress for %.0f s, starting over", silent.Seconds())
	b.notes.lastWord(fmt.Sprintf("no progress for %.0f s", silent.Seconds()))
	b.startOver()
}

func (b *boot) startOver() {
	b.disk.settle()
	b.say("restart: %v", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

// run runs stages until one fails. It makes an error of a panic: PID 1 must not end.
func (b *boot) run(ctx context.Context, stages []bootStage) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	for _, s := range stages {
		b.progress.Made()
		end := func(error) {}
		if !s.quiet {
			end = b.trace.Begin(s.name)
		}
		err := s.run(b, ctx)
		end(err)
		if err != nil && !s.quiet {
			err = fmt.Errorf("%s: %w", s.name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) readBootstrap(context.Context) error {
	data, err := os.ReadFile(paths.Bootstrap)
	if err != nil {
		return fmt.Errorf("the loader was given no site.cpio: %w", err)
	}
	if err := b.machine.takeBootstrap(data); err != nil {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	b.machine.words = identity.CommandLine(string(line))
	b.machine.limits = b.machine.limits.from(b.machine.words)
	fault.Say(b.say, fault.In(events.BeginDecisions(paths.RunDecisions, b.machine.words), "decisions are not noted"))
	b.chooser.decided = events.DecisionsInto(paths.RunDecisions)
	b.say("loader of fleet %s, registry %s, kernel %s", b.machine.bootstrap.Fleet, b.machine.bootstrap.Registry, kernel.Release())
	return nil
}

func (b *boot) loadModules(context.Context) (err error) {
	if b.machine.modules, err = kernel.OpenModules(paths.ModulesDir+"/"+kernel.Release(), b.machine.words); err != nil {
		return err
	}
	data, _ := os.ReadFile(paths.ModulesLoad) // what no device asks for; most layers have none
	for name := range strings.FieldsSeq(string(data)) {
		fault.Say(b.say, b.machine.modules.Load(name))
	}
	b.machine.coldplug()
	fault.Say(b.say, fault.In(tpm.MountSecurityfs(), "the firmware's log of what it has measured is not there"))
	return nil
}

// guard starts the hardware's watchdog, if there is one: for the loader, and for the
// new root's init to take over.
func (b *boot) guard(context.Context) error {
	timeout := identity.Seconds(b.machine.words, "caisson.watchdog", time.Minute)
	if timeout == 0 {
		return nil
	}
	dog, err := kernel.OpenWatchdog(kernel.WatchdogDevice, timeout)
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

// onTrial finds out whether this loader is one that has to prove itself: systemd-boot counts
// its starts. Behind a kexec another one has started, and has decided.
func (b *boot) onTrial(context.Context) error {
	if b.machine.afterKexec() {
		return nil
	}
	file, err := b.machine.booted(b.machine.variables)
	fault.Say(b.say, fault.In(err, "whether this loader is on trial is not known"))
	if file != "" {
		b.machine.trial = time.Now().Add(b.machine.limits.trial)
		b.say("this loader is on trial: %s; within %s it finds what to boot, or the machine starts over", file, b.machine.limits.trial)
	}
	return nil
}

func (b *boot) identify(context.Context) error {
	b.machine.id = identity.Look(b.machine.words, "/sys")
	b.say("this machine: name %q, MACs %v, UUIDs %v", b.machine.id.Node, b.machine.id.MACs, b.machine.id.UUIDs)
	return nil
}

// openState finds the node's memory: the state disk, or a directory in memory.
func (b *boot) openState(context.Context) error {
	known := &b.machine.bootstrap
	b.disk.finder = &disk.Finder{Sys: "/sys", Dev: "/dev", Scratch: paths.Run + "/look", Fleet: known.Fleet, Named: known.StateDisk,
		Ask: known.NewStateDisk, Say: b.disk.trouble}
	if disk.E2fsInstalled() {
		b.disk.finder.Programs = watched{disk.E2fsPrograms{}, b.progress.Made}
	}
	if len(b.machine.id.UUIDs) > 0 {
		b.disk.finder.Machine = b.machine.id.UUIDs[0]
	}
	return b.disk.open()
}

func (b *boot) choose(ctx context.Context) (err error) {
	b.choice, err = b.chooser.choose(ctx)
	b.chooser.help.shut()
	return err
}

func (b *boot) count(context.Context) error {
	b.attempt.begin(b.choice.generation, b.ways.heard)
	return nil
}

// measure never fails: a machine without a TPM boots, and one whose TPM is ill.
func (b *boot) measure(context.Context) error {
	event, err := measured(spec.MeasuredStack, b.choice.overlay, b.choice.generation)
	if err == nil {
		b.log.Add(event)
	}
	return err
}
