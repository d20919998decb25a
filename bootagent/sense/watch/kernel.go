// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
)

// changes are the events asked of inotify: of content, names, owners and modes.
const changes = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// moves are those after which a place may be another file, or in another directory.
const moves = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED

// maxWatches is well below the kernel's own limit for a user.
const maxWatches = 4096

// inotify watches the directories of places: a file that is replaced by another is not
// watched by its inode. A directory that is not there yet is waited for in the nearest
// one that is.
type inotify struct {
	number  int
	root    string
	places  []place
	watches map[int]*names
}

// names are the files of a watched directory that matter, with their kinds; "" is the file that
// is watched itself.
type names struct {
	path string
	of   map[string][]string
}

func newInotify(w *Watch) (source, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &inotify{number: fd, root: w.root, watches: map[int]*names{}}, nil
}

func (i *inotify) fd() int { return i.number }
func (i *inotify) close()  { unix.Close(i.number) } // only read

// follow watches these places and no others.
func (i *inotify) follow(all []place) error {
	i.places = all
	return i.arm()
}

// arm watches the directories as they are now.
func (i *inotify) arm() error {
	old := i.watches
	i.watches = map[int]*names{}
	var errs []error
	for _, p := range i.places {
		path := filepath.Join(i.root, p.at.Path)
		if p.at.Itself {
			_, err := i.add(path, "", p.kind)
			errs = append(errs, err)
		}
		errs = append(errs, i.near(path, p.kind))
	}
	for number := range old {
		if i.watches[number] == nil {
			_, _ = unix.InotifyRmWatch(i.number, uint32(number)) // it may have gone by itself
		}
	}
	return errors.Join(errs...)
}

// near watches the nearest directory of a path that is there. One that comes or goes
// before its watch begins raises no event, so it looks again.
func (i *inotify) near(path, kind string) error {
	for range maxWatches {
		dir, name := nearest(path)
		there, err := i.add(dir, name, kind)
		if err != nil {
			return err
		}
		if now, _ := nearest(path); there && now == dir {
			return nil
		}
	}
	return fmt.Errorf("watch %s: its directories come and go", path)
}

// nearest returns the nearest directory of a path, and what is looked for in it.
func nearest(path string) (dir, name string) {
	dir, name = filepath.Dir(path), filepath.Base(path)
	for !isDir(dir) && dir != "/" {
		dir, name = filepath.Dir(dir), filepath.Base(dir)
	}
	return dir, name
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// add watches a path, if it is there. One that is not is found by its directory.
func (i *inotify) add(path, name, kind string) (there bool, err error) {
	if len(i.watches) >= maxWatches {
		return false, fmt.Errorf("more than %d directories", maxWatches)
	}
	number, err := unix.InotifyAddWatch(i.number, path, changes)
	if err != nil {
		return false, fault.In(fault.But(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP), "watch %s", path)
	}
	w := i.watches[number]
	if w == nil {
		w = &names{path, map[string][]string{}}
		i.watches[number] = w
	}
	if !slices.Contains(w.of[name], kind) {
		w.of[name] = append(w.of[name], kind)
	}
	return true, nil
}

func (i *inotify) drain() (kinds []string, lost bool) {
	moved := false
	buffer := make([]byte, 16<<10)
	for range most {
		n, err := unix.Read(i.number, buffer)
		if err != nil || n <= 0 {
			break // EAGAIN: that is all
		}
		for _, e := range events(buffer[:n]) {
			if e.mask&unix.IN_Q_OVERFLOW != 0 {
				lost = true
			}
			w := i.watches[e.watch]
			if w == nil {
				continue
			}
			of := w.of[e.name]
			if e.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 { // with all that is in it
				for _, k := range w.of {
					of = append(of, k...)
				}
			}
			kinds = append(kinds, of...)
			moved = moved || len(of) > 0 && e.mask&moves != 0
		}
	}
	if moved {
		lost = i.arm() != nil || lost
	}
	return kinds, lost
}

type event struct {
	watch int
	mask  uint32
	name  string
}

// events reads what the kernel has written, see inotify(7).
func events(b []byte) (out []event) {
	for len(b) >= unix.SizeofInotifyEvent {
		size := int(binary.NativeEndian.Uint32(b[12:]))
		e := event{watch: int(int32(binary.NativeEndian.Uint32(b))), mask: binary.NativeEndian.Uint32(b[4:])}
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return out
		}
		e.name = strings.TrimRight(string(b[:size]), "\x00")
		b = b[size:]
		out = append(out, e)
	}
	return out
}

// socket is a netlink socket whose messages are hints; what they say decides at most
// which kinds.
type socket struct {
	number int
	kinds  func(message []byte) []string
}

func (s *socket) fd() int { return s.number }
func (s *socket) close()  { unix.Close(s.number) } // only read

// most bounds how many messages are read at once: a storm keeps nobody waiting.
const most = 256

func (s *socket) drain() (kinds []string, lost bool) {
	buffer := make([]byte, 16<<10)
	for range most {
		n, _, err := unix.Recvfrom(s.number, buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return kinds, lost
		case errors.Is(err, unix.EINTR):
		case err != nil: // ENOBUFS: the kernel had more than there was room for
			return kinds, true
		default:
			kinds = append(kinds, s.kinds(buffer[:n])...)
		}
	}
	return kinds, lost
}

// listen opens a netlink socket and joins a group by its number.
func listen(family int, group uint32, kinds func([]byte) []string) (source, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(group))
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &socket{fd, kinds}, nil
}

func newRtnetlink(w *Watch) (source, error) {
	return listen(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, func([]byte) []string { return w.kindsOf(item.Rtnetlink) })
}

// newUevent listens to the kernel's own messages: group 1, of which each begins with
// ACTION@PATH and has NAME=value pairs after zeros.
func newUevent(w *Watch) (source, error) {
	return listen(unix.NETLINK_KOBJECT_UEVENT, 1, func(message []byte) []string {
		for field := range bytes.SplitSeq(message, []byte{0}) {
			if name, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
				return w.kindsOfDevice(string(name))
			}
		}
		return nil
	})
}

// newEthtool listens to the group in which the kernel tells of settings of interfaces,
// whichever way they were changed.
func newEthtool(w *Watch) (source, error) {
	group, err := ethtoolGroup()
	if err != nil {
		return nil, err
	}
	return listen(unix.NETLINK_GENERIC, group, func([]byte) []string { return w.kindsOf(item.Ethtool) })
}

// ethtoolGroup asks generic netlink for the number of the group.
func ethtoolGroup() (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close() // the answer is there
	attributes := netlink.NewAttributeEncoder()
	attributes.String(unix.CTRL_ATTR_FAMILY_NAME, unix.ETHTOOL_GENL_NAME)
	data, err := attributes.Encode()
	if err != nil {
		return 0, err
	}
	header := []byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0}
	answers, err := c.Execute(netlink.Message{Header: netlink.Header{Type: unix.GENL_ID_CTRL,
		Flags: netlink.Request | netlink.Acknowledge}, Data: append(header, data...)})
	if err != nil {
		return 0, fmt.Errorf("ask for netlink's %s: %w", unix.ETHTOOL_GENL_NAME, err)
	}
	for _, a := range answers {
		if group := monitorGroup(a.Data); group != 0 {
			return group, nil
		}
	}
	return 0, errors.New("the kernel's ethtool has no group " + unix.ETHTOOL_MCGRP_MONITOR_NAME)
}

// monitorGroup finds the number in a description of the family, 0 where it is not.
func monitorGroup(description []byte) (group uint32) {
	if len(description) < 4 {
		return 0
	}
	family, err := netlink.NewAttributeDecoder(description[4:])
	if err != nil {
		return 0
	}
	for family.Next() {
		if family.Type() != unix.CTRL_ATTR_MCAST_GROUPS {
			continue
		}
		family.Nested(func(groups *netlink.AttributeDecoder) error {
			for groups.Next() {
				groups.Nested(func(one *netlink.AttributeDecoder) error {
					var name string
					var id uint32
					for one.Next() {
						switch one.Type() {
						case unix.CTRL_ATTR_MCAST_GRP_NAME:
							name = one.String()
						case unix.CTRL_ATTR_MCAST_GRP_ID:
							id = one.Uint32()
						}
					}
					if name == unix.ETHTOOL_MCGRP_MONITOR_NAME {
						group = id
					}
					return nil
				})
			}
			return nil
		})
	}
	if family.Err() != nil {
		return 0
	}
	return group
}
