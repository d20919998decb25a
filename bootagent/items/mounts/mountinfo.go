// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec/rules"
)

// maxInfo caps /proc/self/mountinfo: some 100,000 mounts.
const maxInfo = 64 << 20

// mounted is one line of /proc/self/mountinfo, see proc_pid_mountinfo(5).
type mounted struct {
	id          uint64   // while the kernel runs it is that of no other mount at the same time
	dev         string   // major:minor of the file system
	root        string   // the directory of the file system that is mounted
	point       string   // where
	options     []string // of this mount
	propagation []string // shared:N, master:N, unbindable
	fstype      string
	source      string
	super       []string // options of the file system
}

func (m mounted) String() string {
	return m.source + " " + m.fstype + " " + strings.Join(redact(append(m.options[:len(m.options):len(m.options)], m.super...)), ",")
}

// table is all mounts, in the kernel's order.
type table []mounted

func readTable(name string) (table, error) {
	data, err := ownfiles.ReadPublic(name, maxInfo)
	if err != nil {
		return nil, err
	}
	return parseTable(data)
}

func parseTable(data []byte) (table, error) {
	var t table
	for n := 1; len(data) > 0; n++ {
		text, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		m, ok := parseLine(string(text))
		if !ok {
			return nil, fmt.Errorf("line %d of mountinfo is not understood: %q", n, text)
		}
		t = append(t, m)
	}
	return t, nil
}

func parseLine(text string) (mounted, bool) {
	before, after, ok := strings.Cut(text, " - ")
	if !ok {
		return mounted{}, false
	}
	head, tail := strings.Split(before, " "), strings.Split(after, " ")
	if len(head) < 6 || len(tail) < 3 {
		return mounted{}, false
	}
	id, err := strconv.ParseUint(head[0], 10, 64)
	if err != nil {
		return mounted{}, false
	}
	return mounted{
		id:          id,
		dev:         head[2],
		root:        UnescapeDevice(head[3]),
		point:       UnescapeDevice(head[4]),
		options:     strings.Split(head[5], ","),
		propagation: head[6:],
		fstype:      UnescapeDevice(tail[0]),
		source:      UnescapeDevice(tail[1]),
		super:       strings.Split(UnescapeDevice(tail[2]), ","),
	}, true
}

// at returns the topmost mount at a mount point.
func (t table) at(point string) (mounted, bool) {
	for n := len(t) - 1; n >= 0; n-- {
		if t[n].point == point {
			return t[n], true
		}
	}
	return mounted{}, false
}

// holding is the mount that a path lies on.
func (t table) holding(path string) (mounted, bool) {
	var best mounted
	found := false
	for _, m := range t {
		if (within(path, m.point)) && (!found || len(m.point) >= len(best.point)) {
			best, found = m, true
		}
	}
	return best, found
}

// below are the mount points under point.
func (t table) below(point string) []string {
	var points []string
	for _, m := range t {
		if m.point != point && within(m.point, point) {
			points = append(points, m.point)
		}
	}
	return points
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Disks are found by the names that people give them: a path, or a tag as in LABEL=data, which is
// looked up among udev's links, at each look, so that a disk that comes later is found then.

// ErrMissingDevice is the error of a device that is not there.
var ErrMissingDevice = errors.New("not there yet")

// byTag maps rules.MountTags to udev's directories below /dev/disk.
var byTag = map[string]string{"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel", "ID": "by-id"}

// TaggedDevice returns the path of a device that is named by a tag; dev is /dev. ok is
// false for a name without one.
func TaggedDevice(dev, name string) (path string, ok bool, err error) {
	tag, value := rules.MountTag(name)
	if tag == "" {
		return "", false, nil
	}
	path, err = filepath.EvalSymlinks(filepath.Join(dev, "disk", byTag[tag], encodeTag(value)))
	if errors.Is(err, fs.ErrNotExist) {
		err = MissingDevice(name)
	}
	return path, true, err
}

// MissingDevice is the error of a device of that name.
func MissingDevice(name string) error { return fmt.Errorf("%s is %w", name, ErrMissingDevice) }

// encodeTag is how udev writes a label into a file name.
func encodeTag(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r >= 0x80, r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune("#+-.:=@_", r):
			out.WriteRune(r)
		default:
			fmt.Fprintf(&out, `\x%02x`, r)
		}
	}
	return out.String()
}

// UnescapeDevice returns a field of /proc/swaps or mountinfo without the kernel's \ooo for blanks
// and the like, see proc(5).
func UnescapeDevice(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
