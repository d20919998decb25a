// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/trust"
	decision "github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// help is asked for by a loader that boots nothing: it tells the fleet's service, and lets an operator in.
type help struct {
	say     say
	machine *machine
	disk    *stateDisk
	ways    *ways

	root  string // prefix of every path, for tests
	media rescue.Media
	shell func(context.Context) error // has the console
	end   context.CancelFunc          // of the shell; nil before there was one
	code  string                      // that is shown; "" before one is, and while an operator is let in

	running sync.Mutex // held while an operator is in

	tell Hint      // nil: nobody is notified
	told time.Time // when it was last
}

// letIn looks for a statement that lets an operator in, and gives a shell where one was obeyed, for
// the failure screen to say; "" where no rescue key counts. The code is that of the running node,
// too: a boot that succeeds at last takes what is open along.
func (h *help) letIn(ctx context.Context) string {
	keys, err := h.ways.follower().RescueKeys()
	if err != nil {
		h.code = ""
		h.over()
		return err.Error()
	}
	by := decision.Node{Fleet: h.machine.bootstrap.Fleet, Names: h.machine.id.Tags(), Keys: keys}
	if len(by.Keys.Keys) == 0 {
		h.over()
		return ""
	}
	if s, err := h.disk.folder.Load(); err == nil && s.DHCPName != "" { // else the hardware alone says who this is
		by.Names = append(by.Names, s.DHCPName)
	}
	book, err := rescue.Begin(h.root, bootID(h.machine.proc))
	if err != nil {
		return err.Error()
	}
	book.Able = func(r spec.Rescue) bool { return r.Console && h.hasShell() }
	h.media.Sys, h.media.Dev = h.root+"/sys", h.root+"/dev"
	for _, c := range h.media.News() {
		h.offer(book, c, by)
	}
	h.published(ctx, by.Names, func(c trust.Candidate) bool { return h.offer(book, c, by) })
	h.code = ""
	fault.Say(h.say, book.Withdraw(keys, uptime.Now()))
	left := book.Open.Left(uptime.Now())
	if left > 0 && book.Open.Console && h.hasShell() {
		h.giveShell(ctx, left)
		return fmt.Sprintf("a shell is on the console for %s: %s", left.Round(time.Second), book.Open.Reason)
	}
	h.over()
	h.code = book.Code
	where := ""
	if !h.hasShell() {
		where = ", which counts once the node runs: this loader has no shell"
	}
	name := "" // nobody can ask for what has none
	if len(by.Names) > 0 {
		name = " of " + by.Names[0]
	}
	return fmt.Sprintf("code %s%s, for 'caisson rescue'%s", book.Code, name, where)
}

func (h *help) hasShell() bool {
	_, err := os.Stat(h.root + paths.Busybox)
	return err == nil
}

// offer says what came of a statement, and reports whether it is obeyed.
func (h *help) offer(book *rescue.Book, c trust.Candidate, by decision.Node) bool {
	o, err := book.Offer(c, by, uptime.Now())
	switch {
	case err == nil:
		h.say("somebody is let in for %s, by key %s: %s", o.Until-o.From, o.Signed, o.Reason)
	case !errors.Is(err, rescue.ErrKnown):
		h.say("refused the rescue statement: %v", err)
	}
	return err == nil
}

var errNotObeyed = errors.New("the statement is not obeyed")

// published offers the statements that the registry has, where there is a way to it.
func (h *help) published(ctx context.Context, names []string, offer func(trust.Candidate) bool) {
	if h.ways.source == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	var refused *refusal.Refusal // that a place does not answer is said already
	if err := trust.Rescue(ctx, cmp.Or(h.ways.fleet, h.ways.source), names, func(c trust.Candidate) error {
		if !offer(c) {
			return errNotObeyed
		}
		return nil
	}); errors.As(err, &refused) {
		h.say("rescue: %v", refused)
	}
}

// giveShell has a shell on the console, beside the tries, until the time is over.
func (h *help) giveShell(ctx context.Context, left time.Duration) {
	if !h.running.TryLock() {
		return // an operator is in
	}
	ctx, h.end = context.WithTimeout(ctx, left)
	go func() {
		defer h.running.Unlock()
		fault.Say(h.say, fault.In(h.shell(ctx), "a shell on the console"))
	}()
}

// over ends the shell, where there is one that nothing lets in any more.
func (h *help) over() {
	if h.end != nil {
		h.end()
	}
}

// shut ends the shell before another root or kernel is entered, and whatever the operator left
// behind in it. What is open there goes on in the new root.
func (h *help) shut() {
	if h.end == nil {
		return
	}
	h.end()
	h.running.Lock()
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
	err = c.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended { // its exit code says nothing
		return nil
	}
	return err
}

// Hint sends a hint to the fleet's service of a bootstrap, see [spec.Hint].
type Hint func(ctx context.Context, b spec.Bootstrap, way track.Way, body []byte) error

const (
	hintTries = 3                // so that a registry which starts with its nodes is not news
	hintTime  = 10 * time.Second // that one may take
)

// hint tells the fleet's service that this machine boots nothing, where there is one,
// and a network: unsigned, as a loader has no key, so nothing follows from it there. And
// nothing here: whether it was taken is said and no more.
func (h *help) hint(ctx context.Context, why string) {
	toldNow := !h.told.IsZero() && time.Since(h.told) < h.machine.limits.hint
	if h.tell == nil || h.machine.bootstrap.Hints == "" || h.ways.lease == nil || toldNow {
		return
	}
	h.told = time.Now()
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	fault.Say(h.say, fault.In(h.sendHint(ctx, why), "a hint to %s", h.machine.bootstrap.Hints))
}

func (h *help) sendHint(ctx context.Context, why string) error {
	node := h.machine.id.Node
	if node == "" {
		node = strings.ToLower(h.ways.lease.HostName)
	}
	way, s := track.Way{Silence: hintTime, Agent: track.UserAgent(h.machine.version, h.machine.id)}, &state.State{}
	if h.disk.folder != nil {
		way.Credentials = h.disk.folder.Path(paths.Credentials)
		if known, err := h.disk.folder.Load(); err == nil { // one that cannot be read may be why: the clock does without
			s = known
			way.Own = h.ways.ownSecrets(s)
		}
	}
	way.Clock = track.Clock(s, h.machine.build)
	said := spec.NewHint(h.machine.bootstrap.Fleet, node, spec.Match{MACs: h.machine.id.MACs, UUIDs: h.machine.id.UUIDs}, why)
	said.Code = h.code
	body, err := spec.Encode(said)
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	return h.tell(ctx, h.machine.bootstrap, way, body)
}
