// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// refusedOptions are options of mount(8) that a node gives no meaning to, and
// what to do instead.
var refusedOptions = map[string]string{
	"noauto":     "leave the mount out instead",
	"remount":    "change the options: the node remounts by itself",
	"move":       "name the new target instead",
	"norelatime": "use strictatime: the kernel ignores norelatime",
	"loop":       "attach the file in a script: a node sets up no loop devices",
	"user":       onlyRoot, "users": onlyRoot, "owner": onlyRoot, "group": onlyRoot,
}

const onlyRoot = "leave it out: only root mounts on a node"

// MountOption checks one option of mount(8). What it does not know belongs to the
// file system.
func MountOption(option string) error {
	name, value, _ := strings.Cut(option, "=")
	hint := refusedOptions[name]
	if value != "" && hint == onlyRoot {
		hint = "" // the file system's own, as in user=NAME of cifs
	}
	switch {
	case hint != "":
		return invalid("mount-option", hint, "mount option %q cannot be used", name)
	case option == "" || strings.Contains(option, ",") || hasHidden(option):
		return invalid("mount-option", "", "%.80q is not one mount option", name) // the value may be a password
	}
	return nil
}

// secretOptions are options whose values are for the kernel alone: mount.cifs(8),
// mount.ceph(8), mount.davfs(8) and their like.
var secretOptions = []string{"password", "password2", "passwd", "pass", "pwd", "secret"}

// RedactOption returns an option as plans, errors, status and logs show it.
func RedactOption(option string) string {
	if name, _, ok := strings.Cut(option, "="); ok && slices.Contains(secretOptions, strings.ToLower(name)) {
		return name + "=…"
	}
	return option
}

// MountTags are the words of mount(8) by which a device may be named, as in
// LABEL=data.
var MountTags = []string{"UUID", "LABEL", "PARTUUID", "PARTLABEL", "ID"}

// MountTag splits the name of a device like LABEL=data; tag is "" for others.
func MountTag(device string) (tag, name string) {
	tag, name, ok := strings.Cut(device, "=")
	if !ok || !slices.Contains(MountTags, tag) {
		return "", device
	}
	return tag, strings.Trim(name, `"`)
}

// The agent makes the mounts when its unit starts, so a mount comes before what
// waits for that unit and after what it waits for.
var (
	// EarlyUnits start before the agent: no mount of the site comes before them.
	EarlyUnits = []string{"sysinit.target", "basic.target", "local-fs-pre.target", "local-fs.target", "network-pre.target", "network.target",
		"paths.target", "slices.target", "sockets.target", "swap.target", "timers.target"}
	// LateUnits start after the agent: no mount of the site comes after them.
	LateUnits = []string{"multi-user.target", "graphical.target", "default.target"}
	// WaitingUnits are those that the agent's unit names itself; late as well.
	WaitingUnits = []string{"kubelet.service", "containerd.service", "crio.service", "docker.service"}
)

// Mount checks a file system to mount. Its id is not looked at: it says nothing to
// a node.
func Mount(m spec.Mount) error {
	var f fields
	f.add("target", Path(m.Target))
	f.add("target", Hides(m.Target))
	for _, o := range m.Options {
		f.add("options", MountOption(o))
	}
	bind := slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
	f.add("type", mountType(m.Type, bind))
	f.add("device", mountDevice(m.Device, bind))
	for _, u := range m.Before {
		f.add("before", Unit(u))
		f.add("before", foreignUnit(u))
	}
	for _, u := range m.After {
		f.add("after", Unit(u))
	}
	return f.err()
}

func mountType(name string, bind bool) error {
	switch {
	case name == "bind" || name == "rbind":
		return invalid("type", "write type: none and options: "+name, "%q is an option, not a file system", name)
	case name == "none" && !bind:
		return invalid("type", "for a bind mount write options: bind", "%q does not name a file system", name)
	case name == "auto" && !bind:
		return invalid("type", "name it, for example ext4", "%q does not name a file system", name)
	case name == "swap":
		return invalid("type", "", "swap space is not mounted, it is listed for itself")
	case len(name) > 32 || !spelled(name, lower+digits, lower+digits+"._-"):
		return invalid("type", "as in mount -t, for example tmpfs", "%.80q is not the name of a file system", name)
	}
	return nil
}

func mountDevice(device string, bind bool) error {
	tag, _ := MountTag(device)
	return cmp.Or(refuse(device == "", "required", "", "the value is empty"), oneLine(device),
		refuse(bind && tag != "", "device", "", "%.150q names a device, not a directory to bind", device),
		refuse(bind && !path.IsAbs(device), "device", "", "%.150q, to be bound, is not an absolute path", device))
}

// maxPriority is that of swapon(2).
const maxPriority = 32767

// discards lists the ways in which swapon(8) tells a disk of space that is free again.
var discards = []string{"all", "once", "pages"}

// Swap checks swap space.
func Swap(s spec.Swap) error {
	var f fields
	tag, _ := MountTag(s.Device)
	switch {
	case s.Device == "":
		f.add("device", invalid("required", "", "the value is empty"))
	case tag == "" && (!path.IsAbs(s.Device) || path.Clean(s.Device) != s.Device):
		f.add("device", invalid("device", "for example /dev/vdb or LABEL=swap", "%.150q is not the path of a disk or a file", s.Device))
	default:
		f.add("device", oneLine(s.Device))
	}
	f.add("device", replaces(s.Device))
	if s.Priority != nil && (*s.Priority < 0 || *s.Priority > maxPriority) {
		f.add("priority", invalid("range", "from 0 to 32767, the highest is used first", "%d is not a priority of swap space", *s.Priority))
	}
	f.add("discard", optional(s.Discard, discards))
	return f.err()
}

// SwapOption adds one option of swapon(8) to s. Words of fstab(5) that only others
// read change nothing.
func SwapOption(s *spec.Swap, option string) error {
	name, value, given := strings.Cut(option, "=")
	switch {
	case option == "sw" || option == "defaults" || option == "auto" || option == "nofail":
		return nil
	case name == "pri":
		n, err := strconv.Atoi(value)
		if err != nil {
			return invalid("mount-option", "as in pri=10", "%q is not a priority of swap space", option)
		}
		s.Priority = &n
		return nil
	case name == "discard" && !given:
		s.Discard = "all"
		return nil
	case name == "discard" && (value == "once" || value == "pages"):
		s.Discard = value
		return nil
	}
	return invalid("mount-option", "pri=N, discard, discard=once or discard=pages", "%.80q is not an option of swap space", option)
}
