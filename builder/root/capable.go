// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Unprivileged is returned when this process may not do what a build does. One of
// its fields says why.
type Unprivileged struct {
	Missing []string // capabilities that it lacks, as capabilities(7) names them
	IDs     int      // how many IDs, from 0 up, its user namespace has; too few
	Err     error    // what was refused although it has these
	user    bool     // it is not root, not even of a user namespace
}

func (u *Unprivileged) Error() string {
	switch {
	case len(u.Missing) > 0:
		return "building a layer needs " + strings.Join(u.Missing, ", ") + ", which this process does not have"
	case u.IDs > 0:
		return fmt.Sprintf("building a layer needs the user and group IDs 0 to %d, and this user namespace has %d", lastID, u.IDs)
	}
	return "building a layer: " + u.Err.Error()
}
func (u *Unprivileged) Unwrap() error { return u.Err }

// Ways to build, see docs/building.md.
const (
	userWay      = "unshare --map-root-user --map-auto --mount caisson build …, with package uidmap and lines for the user in /etc/subuid and /etc/subgid"
	containerWay = "podman run --cap-add SYS_ADMIN --security-opt apparmor=unconfined --volume caisson-cache:/var/cache/caisson …"
)

// Hint returns the way to get what is missing.
func (u *Unprivileged) Hint() string {
	switch {
	case u.user:
		return "run it with sudo, or without root: " + userWay
	case u.IDs > 0:
		return "run it so: " + userWay
	}
	return "in a container: " + containerWay
}

// needed are the capabilities that a build needs of its surroundings: those of
// programs in a root, and what setting the root up takes.
var needed = []struct {
	name string
	bit  uint
}{
	{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_FSETID", unix.CAP_FSETID}, {"CAP_KILL", unix.CAP_KILL}, {"CAP_SETGID", unix.CAP_SETGID}, {"CAP_SETUID", unix.CAP_SETUID},
	{"CAP_SETFCAP", unix.CAP_SETFCAP}, {"CAP_SETPCAP", unix.CAP_SETPCAP}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
}

// lastID is nobody, the highest that Debian's packages use.
const lastID = 65534

// Capable reports what this process lacks for a build, as an *[Unprivileged]. It
// may be root of the host, or of a user namespace with enough IDs.
func Capable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	u := &Unprivileged{user: os.Geteuid() != 0}
	for _, c := range needed {
		if have[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			u.Missing = append(u.Missing, c.name)
		}
	}
	if len(u.Missing) > 0 {
		return u
	}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if u.IDs = mapped(string(text)); u.IDs <= lastID {
			return u
		}
	}
	return nil
}

// mapped returns how many IDs from 0 up a map has, see user_namespaces(7).
func mapped(text string) int {
	next := 0
	for found := true; found; {
		found = false
		for line := range strings.Lines(text) {
			var inside, outside, count int
			if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside == next && count > 0 {
				next, found = next+count, true
			}
		}
	}
	return next
}

// userNamespace reports whether this is not the host's own.
func userNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// Try does what running a program in a root takes, without one, so that a host
// that refuses it says so before anything is made, as an *[Unprivileged]. Work is
// as [Root.Work].
func Try(ctx context.Context, work string) error {
	r, err := empty(work)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.Work) // the next build empties work
	nothing := Command{Args: []string{"a program"}, without: "program"}
	if err = r.Run(ctx, nothing); err == nil {
		err = Isolated(ctx, []string{r.Work}, nothing)
	}
	if err != nil && ctx.Err() == nil {
		return &Unprivileged{Err: err}
	}
	return err
}
