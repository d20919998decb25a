// SPDX-License-Identifier: Apache-2.0

package root

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Unprivileged is returned when this process may not do what a build does.
type Unprivileged struct {
	Missing []string // capabilities, as capabilities(7) names them
	Mapped  bool     // it has them in a user namespace only
	Err     error    // what failed, or nil when nothing was tried
}

func (u *Unprivileged) Error() string {
	text := "building a layer needs the host's root, and this is a user namespace, such as that of a rootless container"
	if !u.Mapped {
		text = "building a layer needs " + strings.Join(u.Missing, ", ") + ", which this process does not have"
	}
	if u.Err != nil {
		text += ": " + u.Err.Error()
	}
	return text
}
func (u *Unprivileged) Unwrap() error { return u.Err }

// Hint returns the ways to get them.
func (u *Unprivileged) Hint() string {
	return "run it with sudo; in a container, as root with: sudo podman run --privileged …, or docker run --privileged …"
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

// Capable reports what this process lacks for a build, as an *[Unprivileged].
func Capable() error { return unprivileged(nil) }

// unprivileged returns err, with what this process lacks when it lacks anything.
func unprivileged(err error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if unix.Capget(&header, &have[0]) != nil {
		return err // cannot happen with this header; then the first error has to do
	}
	u := &Unprivileged{Err: err}
	for _, c := range needed {
		if have[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			u.Missing = append(u.Missing, c.name)
		}
	}
	u.Mapped = len(u.Missing) == 0 && userNamespace("/proc/self/uid_map")
	if len(u.Missing) == 0 && !u.Mapped {
		return err
	}
	return u
}

// userNamespace reports whether a map of user ids is not the host's own: there,
// overlayfs keeps its marks where no image can have them, and devices and other
// users' files are out of reach.
func userNamespace(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}
