// SPDX-License-Identifier: Apache-2.0

// Package convert reads what configures a host today, sysctl.d(5),
// limits.conf(5), fstab(5), passwd(5), systemd.link(5), systemd.unit(5), what
// ethtool(8) and dpkg(1) print, and what is given to first-boot tools and other
// configurators, and makes a part of a site of it. What a file is, its content says.
//
// It is loud: every line that says something is in the coverage, taken or not,
// with the reason. What a site would refuse is not taken. Beside [FilesAt] it
// only reads bytes; it knows no host, and does not decide which of a host's files win: files count
// in the order given, a later line wins.
//
// The command line imports it.
package convert

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/report"
)

// File is one file of a host.
type File struct {
	Name string
	Kind string // one of Kinds; "" to tell by the content, else by the name
	Data []byte
	// Found says that nobody named the file: it lay in a directory. Where it cannot
	// be told what it is, it is left out, and the coverage has a line 0 for it.
	Found bool
	Link  string // where it leads, of a link
	Not   string // why it was not read, as Found
}

// Kinds of files.
var Kinds = plain.Each(kinds, func(k kind) string { return k.name })

// MaxFile is the largest file that is read.
const MaxFile = 4 << 20

// maxLines bounds what is made of one import.
const maxLines = 100_000

// Import reads files in order.
func Import(files []File) (*coverage.Result, error) {
	var items []*coverage.Item
	documents := []any{}
	var unknown error // the first file whose kind is not known
	known := false
	for _, f := range files {
		in := &reading{&coverage.Reading{Name: f.Name, Data: string(f.Data), Link: f.Link}}
		k := kindNamed(f.Kind)
		if f.Kind == "" {
			k = kindOf(f)
		}
		switch {
		case f.Not != "":
			in.Miss(0, "", f.Not)
			k = nil
		case empty(f.Data) && in.hides():
			k = nil
		case k != nil, empty(f.Data):
		case f.Found:
			in.Miss(0, "", "unknown kind of content")
		default:
			const why = "unknown kind of file"
			hint := "say --as with one of " + strings.Join(Kinds, ", ")
			in.Miss(1, "the whole file", why+": "+hint)
			unknown = cmp.Or(unknown, report.Invalidf(hint, "read %s: %s", f.Name, why))
		}
		if k != nil {
			known = true
			if len(f.Data) > MaxFile {
				return nil, fmt.Errorf("read %s: more than %d MiB", f.Name, MaxFile>>20)
			}
			k.read(in)
			if in.Broken != nil {
				return nil, in.Broken
			}
		}
		documents, items = append(documents, in.Documents...), append(items, in.Items...)
		if k != nil && len(items) > maxLines {
			return nil, fmt.Errorf("read %s: more than %d lines", f.Name, maxLines)
		}
	}
	if unknown != nil && !known {
		return nil, unknown
	}
	return coverage.Collect(items, documents)
}

// reading is one file being read.
type reading struct{ *coverage.Reading }

const appended = coverage.Appended
