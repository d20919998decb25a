// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/tell/trace"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/trust"
	decision "github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// letting is how an operator is let into a loader that boots nothing. The zero value is this
// machine's.
type letting struct {
	root  string // prefix of every path, for tests
	boot  string // id of this boot; "" is the kernel's
	media rescue.Media
	shell func(context.Context) error // has the console; nil is [shell]
	end   context.CancelFunc          // of the shell; nil before there was one
	code  string                      // that is shown; "" before one is, and while an operator is let in

	running sync.Mutex // held while an operator is in
}

// letIn looks for a statement that lets an operator in, and gives a shell where one was obeyed, for
// the failure screen to say; "" where no rescue key counts. The code is that of the running node,
// too: a boot that succeeds at last takes what is open along.
func (b *boot) letIn(ctx context.Context) string {
	keys, err := b.follower().RescueKeys()
	if err != nil {
		b.letting.code = ""
		b.letting.over()
		return err.Error()
	}
	by := decision.Node{Fleet: b.bootstrap.Fleet, Names: b.id.Tags(), Keys: keys}
	if len(by.Keys.Keys) == 0 {
		b.letting.over()
		return ""
	}
	if s, err := b.folder.Load(); err == nil && s.DHCPName != "" { // else the hardware alone says who this is
		by.Names = append(by.Names, s.DHCPName)
	}
	l := &b.letting
	id, err := l.bootID()
	if err != nil {
		return err.Error()
	}
	book, err := rescue.Begin(l.root, id)
	if err != nil {
		return err.Error()
	}
	book.Able = func(r spec.Rescue) bool { return r.Console && l.hasShell() }
	l.media.Sys, l.media.Dev = l.root+"/sys", l.root+"/dev"
	for _, c := range l.media.News() {
		b.offer(book, c, by)
	}
	b.published(ctx, by.Names, func(c trust.Candidate) bool { return b.offer(book, c, by) })
	l.code = ""
	if err := book.Withdraw(keys, trace.Uptime()); err != nil {
		b.say("%v", err)
	}
	left := book.Open.Left(trace.Uptime())
	if left > 0 && book.Open.Console && l.hasShell() {
		b.giveShell(ctx, left)
		return fmt.Sprintf("a shell is on the console for %s: %s", left.Round(time.Second), book.Open.Reason)
	}
	l.over()
	l.code = book.Code
	where := ""
	if !l.hasShell() {
		where = ", which counts once the node runs: this loader has no shell"
	}
	name := "" // nobody can ask for what has none
	if len(by.Names) > 0 {
		name = " of " + by.Names[0]
	}
	return fmt.Sprintf("code %s%s, for 'caisson rescue'%s", book.Code, name, where)
}

func (l *letting) bootID() (string, error) {
	if l.boot != "" {
		return l.boot, nil
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(slices.DeleteFunc(id, func(c byte) bool { return c == '\n' })), err
}

func (l *letting) hasShell() bool {
	_, err := os.Stat(l.root + paths.Busybox)
	return err == nil
}

// offer says what came of a statement, and reports whether it is obeyed.
func (b *boot) offer(book *rescue.Book, c trust.Candidate, by decision.Node) bool {
	o, err := book.Offer(c, by, trace.Uptime())
	switch {
	case err == nil:
		b.say("somebody is let in for %s, by key %s: %s", o.Until-o.From, o.Signed, o.Reason)
	case !errors.Is(err, rescue.ErrKnown):
		b.say("refused the rescue statement: %v", err)
	}
	return err == nil
}

var errNotObeyed = errors.New("the statement is not obeyed")

// published offers the statements that the registry has, where there is a way to it.
func (b *boot) published(ctx context.Context, names []string, offer func(trust.Candidate) bool) {
	if b.source == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	var refused *refusal.Refusal // that a place does not answer is said already
	if err := trust.Rescue(ctx, b.source, names, func(c trust.Candidate) error {
		if !offer(c) {
			return errNotObeyed
		}
		return nil
	}); errors.As(err, &refused) {
		b.say("rescue: %v", refused)
	}
}

// giveShell has a shell on the console, beside the tries, until the time is over.
func (b *boot) giveShell(ctx context.Context, left time.Duration) {
	l := &b.letting
	if !l.running.TryLock() {
		return // an operator is in
	}
	run := l.shell
	if run == nil {
		run = shell
	}
	ctx, l.end = context.WithTimeout(ctx, left)
	go func() {
		defer l.running.Unlock()
		if err := run(ctx); err != nil {
			b.say("a shell on the console: %v", err)
		}
	}()
}

// over ends the shell, where there is one that nothing lets in any more.
func (l *letting) over() {
	if l.end != nil {
		l.end()
	}
}

// shut ends the shell before another root or kernel is entered, and whatever the operator left
// behind in it. What is open there goes on in the new root.
func (l *letting) shut() {
	if l.end == nil {
		return
	}
	l.end()
	l.running.Lock()
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL) // there may be nobody left
	}
}

// shell runs until who is in ends it, or the context does: then with its group.
func shell(ctx context.Context) error {
	name, err := rescue.Terminal("")
	if err != nil {
		return err
	}
	tty, err := os.OpenFile("/dev/"+name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer tty.Close() // nothing is written to it here
	c := exec.CommandContext(ctx, paths.Busybox, "sh")
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.Env = []string{"HOME=/", "PATH=/bin:/sbin:/usr/bin:/usr/sbin", "TERM=vt220"}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c.Cancel = func() error { return unix.Kill(-c.Process.Pid, unix.SIGKILL) }
	var exit *exec.ExitError
	if err := c.Run(); !errors.As(err, &exit) { // how the shell ended says nothing
		return err
	}
	return nil
}
