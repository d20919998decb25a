// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
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
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxInfo))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
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
