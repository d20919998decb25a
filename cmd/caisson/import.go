// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/convert"
)

func (a *app) importCommand() *cobra.Command {
	var kind string
	var strict bool
	c := verb("import", func(_ *cobra.Command, names []string) error {
		if kind != "" && !slices.Contains(convert.Kinds, kind) {
			return cli.Usage("one of "+strings.Join(convert.Kinds, ", "), "--as: unknown kind %q", kind)
		}
		var files []convert.File
		for _, name := range names {
			found, err := hostFilesAt(name, kind)
			if err != nil {
				return err
			}
			files = append(files, found...)
		}
		r, err := convert.Import(files)
		if err != nil {
			return err
		}
		shown := a.show(r, func() { err = r.WriteYAML(a.out) })
		if err := cmp.Or(shown, err); err != nil {
			return err
		}
		unknown := 0
		for _, l := range r.Coverage {
			switch {
			case l.Why != "" && l.Line > 0:
				a.say("%s:%d: %s: %s", l.File, l.Line, l.Text, l.Why)
			case l.Why != "":
				unknown++
				a.sayDetail("%s: %s", l.File, l.Why)
			}
		}
		if unknown > 0 {
			a.say("%s left out; -v lists them", plain.Count(unknown, "file"))
		}
		missed := r.Missed()
		a.say("%s, %d taken as they are", plain.Count(len(r.Coverage), "line"), len(r.Coverage)-missed)
		if strict && missed > 0 {
			return cli.ErrInvalid
		}
		return nil
	})
	c.Flags().StringVar(&kind, "as", "", "what the files are: "+strings.Join(convert.Kinds, ", "))
	c.Flags().BoolVar(&strict, "strict", false, "fail when a line was not taken as it is")
	return c
}

// leftover is the name of a file that editors and package managers keep beside the
// one that counts, and the kernel's own list of mounts.
var leftover = regexp.MustCompile(`(/mtab|~|-|\.bak|\.old|\.orig|\.swp|\.(dpkg|ucf|rpm)\w*(-\w+)?)$`)

// hostFilesAt reads a file, or those below a directory.
func hostFilesAt(name, kind string) ([]convert.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		link, _ := os.Readlink(name) // "" where it is a file
		data, err := readHostFile(name)
		return []convert.File{{Name: name, Kind: kind, Data: data, Link: link}}, err
	}
	var out []convert.File
	err = filepath.WalkDir(name+"/", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || leftover.MatchString(at) {
			return err
		}
		f := convert.File{Name: at, Kind: kind, Found: true}
		f.Link, _ = os.Readlink(at) // "" where it is a file
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Not, err = "a link to nowhere", nil
		case err != nil:
		case info.IsDir():
			f.Not = "a link to a directory: import that one, too"
		case !info.Mode().IsRegular() && f.Link != os.DevNull:
			f.Not = "not a file"
		case info.Size() > convert.MaxFile:
			f.Not = fmt.Sprintf("more than %d MiB", convert.MaxFile>>20)
		default:
			if f.Data, err = readHostFile(at); bytes.IndexByte(f.Data, 0) >= 0 {
				f.Not = "not text"
			}
		}
		out = append(out, f)
		return err
	})
	return out, err
}

func readHostFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, convert.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
