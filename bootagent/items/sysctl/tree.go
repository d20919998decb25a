// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxValue caps what is read of one key.
const maxValue = 1 << 20

// tree is /proc/sys.
type tree string

func (t tree) path(key string) string { return string(t) + "/" + key }

// Read implements tunable.Files. It and Write use the system calls themselves: package os would ask for each
// file whether it can be polled, and this is done a thousand times in a run.
func (t tree) Read(key string) (string, error) {
	fd, err := t.open(key, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd) // only read
	var first [4096]byte // nearly every value fits
	data := first[:0]
	for len(data) < maxValue {
		if len(data) == cap(data) {
			data = slices.Grow(data, cap(data))
		}
		n, err := unix.Read(fd, data[len(data):cap(data)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: t.path(key), Err: err}
		}
		if n == 0 {
			break
		}
		data = data[:len(data)+n]
	}
	return strings.TrimRight(string(data), "\n"), nil
}

// Write implements tunable.Files: it hands the kernel the value in one write(2), as it asks for. The line end
// lets an empty value be written at all.
func (t tree) Write(key, value string) error {
	fd, err := t.open(key, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	text := []byte(value + "\n")
	n, err := unix.Write(fd, text)
	for err == unix.EINTR {
		n, err = unix.Write(fd, text)
	}
	_ = unix.Close(fd) // the kernel answers the write
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: t.path(key), Err: err}
	}
	return nil
}

func (t tree) open(key string, flags int) (int, error) {
	for {
		fd, err := unix.Open(t.path(key), flags|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &fs.PathError{Op: "open", Path: t.path(key), Err: err}
		}
	}
}

// Writable implements tunable.Files.
func (t tree) Writable(key string) bool {
	info, err := os.Stat(t.path(key))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o222 != 0
}

// sides are the keys that the kernel changes when another one is written.
var sides = map[string][]string{
	"net/ipv4/ip_forward":                           {"net/ipv4/conf/*/forwarding", "net/ipv4/conf/all/accept_redirects"},
	"net/ipv4/conf/all/forwarding":                  {"net/ipv4/conf/*/forwarding", "net/ipv4/ip_forward", "net/ipv4/conf/all/accept_redirects"},
	"net/ipv6/conf/all/forwarding":                  {"net/ipv6/conf/*/forwarding"},
	"net/ipv6/conf/all/disable_ipv6":                {"net/ipv6/conf/*/disable_ipv6"},
	"net/ipv6/conf/all/ignore_routes_with_linkdown": {"net/ipv6/conf/*/ignore_routes_with_linkdown"},
	"net/ipv6/conf/all/addr_gen_mode":               {"net/ipv6/conf/*/addr_gen_mode"},
	"net/mpls/conf/all/input":                       {"net/mpls/conf/*/input"},
	"vm/dirty_bytes":                                {"vm/dirty_ratio"},
	"vm/dirty_ratio":                                {"vm/dirty_bytes"},
	"vm/dirty_background_bytes":                     {"vm/dirty_background_ratio"},
	"vm/dirty_background_ratio":                     {"vm/dirty_background_bytes"},
}

// coupled are the present keys that writing key may change.
func (t tree) coupled(key string) []string {
	var keys []string
	for _, pattern := range sides[key] {
		if !strings.Contains(pattern, "*") {
			keys = append(keys, pattern)
			continue
		}
		found, _ := filepath.Glob(t.path(pattern)) // the patterns are ours, so never malformed
		for _, name := range found {
			if side := strings.TrimPrefix(name, string(t)+"/"); side != key {
				keys = append(keys, side)
			}
		}
	}
	return keys
}

// Owner implements tunable.Files: it is the number of the interface that a key
// below net/*/conf or net/*/neigh belongs to.
func (tree) Owner(key string) uint64 {
	parts := strings.Split(key, "/")
	if len(parts) != 5 || parts[0] != "net" || parts[2] != "conf" && parts[2] != "neigh" || parts[3] == "all" || parts[3] == "default" {
		return 0
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd) // the ioctl has had its answer
	request, err := unix.NewIfreq(parts[3])
	if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request) != nil {
		return 0
	}
	return uint64(request.Uint32())
}
