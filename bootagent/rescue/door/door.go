// SPDX-License-Identifier: Apache-2.0

// Package door opens what a rescue statement names on a running system, and shuts it: keys of
// root for sshd(8), and a shell on the console.
//
// Both end by themselves, whatever becomes of the agent. sshd asks this program for the keys at
// each login, see AuthorizedKeysCommand in sshd_config(5), which has none when the time is over.
// What such a key begins, and the shell, is this program, which looks at the book and ends all
// that it has begun. Who asked for keys is noted, so that connections end, too. Package rescue
// knows what is open.
package door

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
)

// Systemd holds the calls to the running systemd.
type Systemd interface {
	State(ctx context.Context, unit string) (state string, since time.Time, err error)
	Do(ctx context.Context, job, unit string) error
	Console(ctx context.Context, c process.Terminal) error
}

// Doors are those of a system.
type Doors struct {
	Root    string  // prefix of every path, for tests
	Program string  // this one, as sshd is to start it
	Systemd Systemd // nil where none runs: then nothing has to be told
}

// Follow opens what is open by the book, and shuts the rest: called often, it does nothing where
// all is as it should be. What could not be opened does not keep the rest shut.
func (d Doors) Follow(ctx context.Context, o *rescue.Open, up time.Duration) error {
	left := o.Left(up)
	open := left > 0 && len(o.SSHKeys) > 0
	err := d.ssh(ctx, open)
	if !open {
		err = errors.Join(err, HangUp(d.Root))
	}
	return errors.Join(err, d.console(ctx, o, left))
}

// sshDir is read before the rest of sshd's settings, and dropIn sorts before those of a layer:
// of two values sshd takes the first.
const (
	sshDir = "/etc/ssh/sshd_config.d"
	dropIn = "0-caisson-rescue.conf"
	sshd   = "ssh.service"
	active = "active"
)

// settings let root in by these keys alone: where the layer forbids root, its other keys and
// certificates must not count because an operator is let in.
func (d Doors) settings() string {
	return "# While somebody is let in by a rescue statement; the agent removes it.\nMatch User root\n\tPermitRootLogin prohibit-password\n\tPubkeyAuthentication yes\n" +
		"\tAuthenticationMethods publickey\n\tAuthorizedKeysFile none\n\tTrustedUserCAKeys none\n" +
		"\tAuthorizedKeysCommand " + d.Program + " " + paths.RescueKeys + "\n\tAuthorizedKeysCommandUser root\n"
}

// ssh has sshd ask for the keys, or not any more.
func (d Doors) ssh(ctx context.Context, open bool) error {
	w := new(safepath.Walk)
	defer w.Close()
	dir, err := w.Hold(filepath.Join(d.Root, sshDir))
	if errors.Is(err, fs.ErrNotExist) && !open {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	defer dir.Close() // what matters was synced
	is, err := dir.Look(dropIn, 4<<10)
	if err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	if right := is.Type() == unix.S_IFREG && string(is.Content) == d.settings(); open && right || !open && is.Mode == 0 {
		return nil
	}
	if open {
		err = dir.Put(dropIn, safepath.Thing{Mode: unix.S_IFREG | 0o600, UID: os.Geteuid(), GID: os.Getegid(), Content: []byte(d.settings())})
	} else {
		err = dir.Remove(dropIn)
	}
	if err == nil {
		err = d.reload(ctx)
	}
	if err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	return nil
}

// reload has sshd read its settings. One that does not run reads them when it starts.
func (d Doors) reload(ctx context.Context) error {
	if d.Systemd == nil {
		return nil
	}
	state, _, err := d.Systemd.State(ctx, sshd)
	if err != nil || state != active {
		return err
	}
	return d.Systemd.Do(ctx, "reload", sshd)
}

// Keys are the lines that sshd is told for root. What each of them begins is this program, and
// nothing else: no forward of a port or socket.
func Keys(o *rescue.Open, up time.Duration, program string) string {
	if o.Left(up) == 0 {
		return ""
	}
	var b strings.Builder
	for _, key := range o.SSHKeys {
		fmt.Fprintf(&b, "restrict,pty,command=%q %s\n", program+" "+paths.RescueShell+" "+nameOf(key), key)
	}
	return b.String()
}

// onConsole is the name of the shell on the console, as [nameOf] gives one to a key.
const onConsole = "console"

// nameOf is a short name of a key.
func nameOf(key string) string { return fmt.Sprintf("%.8x", sha256.Sum256([]byte(key))) }

// Left is for how long a session that began by a key, or on the console, is open yet: it ends, too,
// when a later statement names neither.
func Left(o *rescue.Open, up time.Duration, by string) time.Duration {
	named := o != nil && (by == onConsole && o.Console || slices.ContainsFunc(o.SSHKeys, func(key string) bool { return nameOf(key) == by }))
	if !named {
		return 0
	}
	return o.Left(up)
}
