// SPDX-License-Identifier: Apache-2.0

// Disks are found by the names that people give them: a path, or a tag as in LABEL=data, which is
// looked up among udev's links, at each look, so that a disk that comes later is found then.

package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
)

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
