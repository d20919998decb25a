// SPDX-License-Identifier: Apache-2.0

// Package letin sees to who is let into a running node: it takes the statements of rescue that
// the registry or a medium has, has the book decide about each (package rescue), and opens and
// shuts what the book says ([Doors]): keys of root for sshd(8), and a shell on the console. Package
// program calls it in its rhythm; status and sshd ask who is let in now.
//
// Both end by themselves, whatever becomes of the agent. sshd asks this program for the keys at
// each login, see AuthorizedKeysCommand in sshd_config(5), which has none when the time is over.
// What such a key begins, and the shell, is this program, which looks at the book and ends all
// that it has begun. Who asked for keys is noted, so that connections end, too.
package letin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	decision "github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Keeper sees to who is let into the node, from one look to the next. The zero value is that of
// a service that has just started.
type Keeper struct {
	asked time.Time
	media rescue.Media
}

// Look looks for a statement that lets an operator in, opens what it names, and shuts what is over.
// The registry is asked once in every, media when they change. It returns for how long something is open yet. Where
// no operator is let in, and it is not time to ask, the node is not opened.
func (k *Keeper) Look(ctx context.Context, o session.Options, every time.Duration) (time.Duration, error) {
	boot, err := session.KernelID()
	if err != nil {
		return 0, err
	}
	k.media.Sys, k.media.Dev = filepath.Join(o.Root, "/sys"), filepath.Join(o.Root, "/dev")
	carried := k.media.News()
	if b, err := rescue.Read(o.Root, boot); err == nil && b.Open == nil && !k.due(every) && len(carried) == 0 {
		return 0, nil
	}
	s, err := session.Open(ctx, o, nil)
	if err != nil {
		k.media.Again()
		return 0, err
	}
	left, err := k.look(ctx, s, every, carried)
	return left, errors.Join(err, s.Close())
}

// due reports whether the registry is to be asked.
func (k *Keeper) due(every time.Duration) bool {
	return k.asked.IsZero() || time.Since(k.asked) >= every
}

func (k *Keeper) look(ctx context.Context, s *session.Session, every time.Duration, carried []trust.Candidate) (time.Duration, error) {
	by := decision.Node{}
	var none error
	if s.Tracker != nil { // else no key is trusted yet
		by = decision.Node{Fleet: s.Tracker.Bootstrap.Fleet, Names: s.Tracker.Identity.Tags()}
		if by.Keys, none = s.Tracker.RescueKeys(); none != nil {
			k.media.Again() // what they carry may count once it is known which keys do
		}
	}
	open, counts := rescue.Read, len(by.Keys.Keys) > 0
	if counts {
		open = rescue.Begin
	}
	b, err := open(s.Options.Root, s.Scopes.Kernel)
	if err != nil {
		return 0, errors.Join(none, err)
	}
	err = none
	for _, c := range carried {
		if !counts {
			break
		}
		if _, wrong := offer(s, b, c, by); unexpected(wrong) != nil {
			err = errors.Join(err, fmt.Errorf("a medium: %w", wrong))
		}
	}
	if counts && k.due(every) {
		err = errors.Join(err, ask(ctx, s, b, by))
	}
	if k.due(every) {
		k.asked = time.Now()
	}
	err = errors.Join(err, b.Withdraw(by.Keys, s.Up()))
	return b.Open.Left(s.Up()), errors.Join(err, follow(ctx, s, b))
}

// ask takes what the registry has under one of the machine's names. That it has nothing, or what
// was looked at before, is the rule.
func ask(ctx context.Context, s *session.Session, b *rescue.Book, by decision.Node) error {
	err := trust.Rescue(ctx, s.Tracker.Source, by.Names, func(c trust.Candidate) error {
		_, err := offer(s, b, c, by)
		return err
	})
	return unexpected(err)
}

// offer lets the book decide about a statement, and writes down what came of it.
func offer(s *session.Session, b *rescue.Book, c trust.Candidate, by decision.Node) (*rescue.Open, error) {
	wrong := len(b.Wrong)
	o, err := b.Offer(c, by, s.Up())
	switch {
	case err == nil:
		s.Record("let-in", events.With("opens", strings.Join(o.Opens(), ",")), events.With("for", (o.Until-o.From).String()),
			events.With("why", o.Reason), events.With("keys", strings.Join(o.Signed, ",")), events.With("times", b.Times))
	case len(b.Wrong) > wrong:
		s.Record("not-let-in", events.With("why", err), events.With("times", len(b.Wrong)))
	}
	return o, err
}

// unexpected is an error without those that say that there is nothing new.
func unexpected(err error) error {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		return errors.Join(plain.Each(many.Unwrap(), unexpected)...)
	}
	if errors.Is(err, oci.ErrNotFound) || errors.Is(err, rescue.ErrKnown) || refusal.Of(err) == refusal.WrongCode {
		return nil // the last is written down, once
	}
	return err
}

// follow opens and shuts what the book says, and keeps what that came to.
func follow(ctx context.Context, s *session.Session, b *rescue.Book) error {
	was := b.Open
	left, trouble := was.Left(s.Up()), ""
	if was != nil {
		trouble = was.Trouble + was.Getty
	}
	err := doors(s).Follow(ctx, was, s.Up())
	if was == nil {
		return err
	}
	if was.Trouble = ""; err != nil {
		was.Trouble = err.Error()
	}
	if left == 0 && err == nil {
		s.Record("let-in-over", events.With("why", was.Reason))
		b.Open = nil
		return b.Save()
	}
	if was.Trouble+was.Getty != trouble {
		err = errors.Join(err, b.Save())
	}
	return err
}

// doors are those of this machine.
func doors(s *session.Session) Doors {
	self, _ := os.Executable() // else where layers have it
	d := Doors{Root: s.Options.Root, Program: cmp.Or(self, paths.Agent)}
	if m, runs := s.Systemd().(Systemd); runs {
		d.Systemd = m
	}
	return d
}

// openNow returns who is let in now, nil where that is nobody, and how long this kernel runs: for who
// asks without opening the node.
func openNow(root string) (*rescue.Open, time.Duration, error) {
	boot, err := session.KernelID()
	if err != nil {
		return nil, 0, err
	}
	b, err := rescue.Read(root, boot)
	if err != nil {
		return nil, 0, err
	}
	return b.Open, uptime.Now(), nil
}

// Offered returns the line by which sshd is to let root in, where it was offered a key that is let in, ""
// for another, and notes the connection that asks.
func Offered(root, offered string) (line string, err error) {
	o, up, err := openNow(root)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	line, by := keyLine(o, up, self, offered)
	if line == "" {
		return "", nil
	}
	return line, note(root, os.Getppid(), by) // nobody comes in whom nothing would end
}

// Shell is a session that such a key began, or the shell on the console.
func Shell(ctx context.Context, root, by string) (code int, err error) {
	return runShell(ctx, root, by, func() time.Duration {
		o, up, err := openNow(root)
		if err != nil {
			return 0 // what cannot be read lets nobody in
		}
		return leftOf(o, up, by)
	})
}

// note notes a process that is to end with what let it in, as a file named by its number, when it
// started and [nameOf] its key, and forgets those that have ended. sshd's process that asks for keys
// is the whole connection that they let in: root's has no other. It asks last for the key that does.
func note(root string, pid int, by string) error {
	dir := filepath.Join(root, paths.RunLetIn)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := noted(dir)
	if err != nil {
		return err
	}
	_, started, ok := process.Stat(pid)
	if pid <= 1 || !ok {
		return fmt.Errorf("process %d is not one that ends with the rescue", pid)
	}
	note := fmt.Sprintf("%d-%s-", pid, started)
	err = os.WriteFile(filepath.Join(dir, note+by), nil, 0o600)
	for _, name := range names {
		if ended(name) || strings.HasPrefix(name, note) && name != note+by {
			err = errors.Join(err, durable.Remove(filepath.Join(dir, name)))
		}
	}
	return err
}

// hangUp ends what was noted and is over by what let it in, each with all that is below it, but
// for this process.
func hangUp(root string, over func(by string) bool) error {
	dir := filepath.Join(root, paths.RunLetIn)
	for {
		names, err := noted(dir)
		names = slices.DeleteFunc(names, func(name string) bool { return !over(name[strings.LastIndexByte(name, '-')+1:]) })
		for _, name := range names {
			number, _, _ := strings.Cut(name, "-")
			pid, _ := strconv.Atoi(number) // another name is of no process
			if !ended(name) {
				err = errors.Join(err, endBelow(pid), end(pid))
			}
			err = errors.Join(err, durable.Remove(filepath.Join(dir, name))) // a session may have been first
		}
		if len(names) == 0 || err != nil { // a session that ends meanwhile may note what it leaves
			return err
		}
	}
}

func noted(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	return plain.Each(entries, fs.DirEntry.Name), fault.But(err, fs.ErrNotExist)
}

// ended reports whether the process of a note is there no more: its number may be another's.
func ended(name string) bool {
	number, rest, _ := strings.Cut(name, "-")
	started, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	_, now, ok := process.Stat(pid)
	return err != nil || !ok || now != started
}

// below returns the processes below one, each before those that it started, but for this process
// and what is below it in turn.
func below(pid int) (found []int) {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc") // none are found where it is not there
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			if parent, _, ok := process.Stat(n); ok {
				children[parent] = append(children[parent], n)
			}
		}
	}
	for next := children[pid]; len(next) > 0; next = next[1:] {
		if next[0] != os.Getpid() {
			found = append(found, next[0])
			next = append(next, children[next[0]]...)
		}
	}
	return found
}

// endBelow ends what is below a process, until there is nothing more.
func endBelow(pid int) (err error) {
	for range 100 { // what forks meanwhile is found by the next
		all := below(pid)
		if len(all) == 0 {
			return nil
		}
		for _, p := range slices.Backward(all) { // else what it started would be another's
			err = errors.Join(err, end(p))
		}
	}
	return errors.Join(err, fmt.Errorf("processes below %d go on", pid))
}

// end ends a process, and waits until it has ended, for a second.
func end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fault.In(fault.But(err, unix.ESRCH), "end process %d", pid)
	}
	defer unix.Close(fd) // nothing was written
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Second/time.Millisecond))
	return fault.In(fault.But(err, unix.EINTR), "end process %d", pid)
}
