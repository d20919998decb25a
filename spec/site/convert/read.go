// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// reading is one file being read.
type reading struct {
	name  string
	data  string
	link  string // where the file leads
	items []*parsed

	documents []any // parts of a site beside its conf
	broken    error // the file cannot be read to its end: none of it counts
}

// lines calls f for every line that is not blank or a comment.
func (r *reading) lines(comments string, f func(n int, line string)) {
	for n, line := range strings.Split(r.data, "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if line != "" && !strings.ContainsRune(comments, rune(line[0])) {
			f(n+1, line)
		}
	}
}

func (r *reading) item(n int, line string) *parsed {
	p := &parsed{Line: Line{File: r.name, Line: n, Text: report.Printable(line, 200)}}
	r.items = append(r.items, p)
	return p
}

func (r *reading) miss(n int, line, why string) { r.item(n, line).Why = why }

// whole says why no part of a file is taken.
func (r *reading) whole(why string) { r.miss(1, "the whole file", why) }

// take notes a value; same names its setting, by which a later line replaces it.
func (r *reading) take(n int, line, module, same string, path []string, value any) *parsed {
	p := r.item(n, line)
	p.Taken, p.module, p.same, p.path, p.value = true, module, module+" "+same, path, value
	return p
}

// readSysctl reads sysctl.d(5).
func readSysctl(r *reading) {
	r.lines("#;", func(n int, line string) {
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		name, optional := strings.CutPrefix(key, "-")
		switch {
		case !ok && optional:
			r.miss(n, line, "it excludes a key from a pattern, and patterns are not taken")
		case !ok:
			r.miss(n, line, "there is no = in it")
		case strings.ContainsAny(name, "*?["):
			r.miss(n, line, "a site has no patterns: write the keys that it stands for")
		default:
			r.sysctl(n, line, name, value, optional)
		}
	})
}

func (r *reading) sysctl(n int, line, name, value string, optional bool) {
	name = rules.SysctlName(rules.SysctlPath(name))
	same := name
	if optional {
		name = "-" + name
	}
	r.take(n, line, "sysctl", same, []string{name}, value)
}

// section is one of a file in the form of systemd.syntax(7).
type section struct {
	name  string
	at    int
	lines []setting
}

type setting struct {
	n                int
	line, key, value string
}

// sections reads such a file. Lines before the first section are in one without a name.
func (r *reading) sections() []section {
	out := []section{{}}
	r.lines("#;", func(n int, line string) {
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			out = append(out, section{name: strings.Trim(line, "[]"), at: n})
			return
		}
		key, value, _ := strings.Cut(line, "=")
		last := &out[len(out)-1]
		last.lines = append(last.lines, setting{n, line, strings.TrimSpace(key), strings.TrimSpace(value)})
	})
	return out
}

var notID = regexp.MustCompile(`[^A-Za-z0-9_.+-]+`)

// readLimits reads limits.conf(5).
func readLimits(r *reading) {
	r.lines("#", func(n int, line string) {
		text, _, _ := strings.Cut(line, "#")
		f := strings.Fields(text)
		if len(f) != 4 {
			why := "a limit has four fields"
			if len(f) == 2 && f[1] == "-" {
				why = "an exemption from all limits has no counterpart"
			}
			r.miss(n, line, why)
			return
		}
		domain := strings.NewReplacer("*", "all", "@", "group-", "%", "max-", ":", "-to-").Replace(f[0])
		kind := strings.Replace(f[1], "-", "both", 1)
		id := strings.Trim(notID.ReplaceAllString(domain+"-"+kind+"-"+f[2], "-"), "-.")
		r.take(n, line, "limits", f[0]+" "+f[1]+" "+f[2], []string{id}, map[string]any{"domain": f[0], "type": f[1], "item": f[2], "value": f[3]})
	})
}

var fstabEscape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// readFstab reads fstab(5).
func readFstab(r *reading) {
	r.lines("#", func(n int, line string) {
		f := strings.Fields(line)
		if len(f) < 3 {
			r.miss(n, line, "a mount has at least three fields")
			return
		}
		device, target, kind := fstabEscape.Replace(f[0]), fstabEscape.Replace(f[1]), f[2]
		var options, left []string
		if len(f) > 3 {
			for _, o := range strings.Split(f[3], ",") {
				switch {
				case o == "noauto":
					r.miss(n, line, "noauto: it is not mounted at boot")
					return
				case strings.HasPrefix(o, "x-"):
					left = append(left, o)
				case o != "defaults" && o != "" && !(o == "sw" && kind == "swap"):
					options = append(options, o)
				}
			}
		}
		id, same := mountID(target), path.Clean(target)
		if kind == "swap" {
			id, same, target = mountID("swap"+device), "swap "+device, "none"
		}
		value := map[string]any{"mnt_tgt": target, "device": device, "type": kind}
		if len(options) > 0 {
			value["options"] = strings.Join(options, ",")
		}
		p := r.take(n, line, "mounts", same, []string{id}, value)
		var without []string
		if len(left) > 0 {
			without = append(without, strings.Join(left, ",")+": write before and after instead")
		}
		for n, what := range []string{4: "its dump ", 5: "its fsck pass "} {
			if what != "" && n < len(f) && f[n] != "0" {
				without = append(without, what+f[n])
			}
		}
		if without = append(without, f[min(6, len(f)):]...); without != nil {
			p.Why = "taken without " + strings.Join(without, "; without ")
		}
	})
}

// mountID makes a mount's id of its target.
func mountID(target string) string {
	return cmp.Or(strings.Trim(notID.ReplaceAllString(target, "-"), "-."), "root")
}

// siteText is a file system with one file, whatever name is asked for: the form in
// which a site reads its input.
type siteText string

// Open implements fs.FS.
func (t siteText) Open(name string) (fs.File, error) {
	return &openText{name: name, size: int64(len(t)), Reader: strings.NewReader(string(t))}, nil
}

// openText is the open file and its own description.
type openText struct {
	name string
	size int64
	io.Reader
}

func (f *openText) Stat() (fs.FileInfo, error) { return f, nil }
func (f *openText) Close() error               { return nil }
func (f *openText) Name() string               { return f.name }
func (f *openText) Size() int64                { return f.size }
func (f *openText) Mode() fs.FileMode          { return 0o444 }
func (f *openText) ModTime() time.Time         { return time.Time{} }
func (f *openText) IsDir() bool                { return false }
func (f *openText) Sys() any                   { return nil }

// leftover is the name of a file that editors and package managers keep beside the
// one that counts, and the kernel's own list of mounts.
var leftover = regexp.MustCompile(`(/mtab|~|-|\.bak|\.old|\.orig|\.swp|\.(dpkg|ucf|rpm)\w*(-\w+)?)$`)

// FilesAt reads a file, or those below a directory.
func FilesAt(name, kind string) ([]File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		link, _ := os.Readlink(name) // "" where it is a file
		data, err := readFile(name)
		return []File{{Name: name, Kind: kind, Data: data, Link: link}}, err
	}
	var out []File
	err = filepath.WalkDir(name+"/", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || leftover.MatchString(at) {
			return err
		}
		f := File{Name: at, Kind: kind, Found: true}
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
		case info.Size() > MaxFile:
			f.Not = fmt.Sprintf("more than %d MiB", MaxFile>>20)
		default:
			if f.Data, err = readFile(at); bytes.IndexByte(f.Data, 0) >= 0 {
				f.Not = "not text"
			}
		}
		out = append(out, f)
		return err
	})
	return out, err
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// yamlOf writes plain data as YAML in which every value is quoted text, or a block of
// lines, so that no reader makes a number or a boolean of it.
func yamlOf(v any) ([]byte, error) { return tree.Encode(nodeOf(v)) }

func nodeOf(v any) *yaml.Node {
	if m, ok := v.(map[string]any); ok {
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			key := &yaml.Node{}
			key.SetString(k)
			n.Content = append(n.Content, key, nodeOf(m[k]))
		}
		return n
	}
	if l, ok := v.([]any); ok {
		return &yaml.Node{Kind: yaml.SequenceNode, Content: plain.Each(l, nodeOf)}
	}
	if b, ok := v.(bool); ok {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(b)}
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: fmt.Sprint(v), Style: yaml.SingleQuotedStyle}
	if strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	return n
}

// WriteYAML prints the part of a site, and documents of other kinds after it. Values that
// stand beside conf make it a Site, for a Site to include.
func (r *Result) WriteYAML(w io.Writer) error {
	if len(r.Conf)+len(r.Machine) > 0 || len(r.Documents) == 0 {
		text, err := yamlOf(r.parts())
		if err != nil {
			return err
		}
		schema, head := "values", ""
		if len(r.Machine) > 0 {
			schema, head = "site", "apiVersion: caisson.dev/v1alpha1\nkind: Site\n"
		}
		if _, err := fmt.Fprintf(w, "# yaml-language-server: $schema=.schema/%s.schema.json\n%s%s", schema, head, text); err != nil {
			return err
		}
		if len(r.Documents) == 0 {
			return nil
		}
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	text, err := documentsText(r.Documents)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// parts are those of a site that have a value, conf in any case where no other has.
func (r *Result) parts() map[string]any {
	out := map[string]any{}
	if len(r.Conf) > 0 || len(r.Machine) == 0 {
		out["conf"] = r.Conf
	}
	if len(r.Machine) > 0 {
		out[machine] = r.Machine
	}
	return out
}

// documentsText writes several documents as one file.
func documentsText(docs []any) ([]byte, error) {
	var parts [][]byte
	for _, d := range docs {
		text, err := yamlOf(d)
		if err != nil {
			return nil, err
		}
		parts = append(parts, text)
	}
	return bytes.Join(parts, []byte("---\n")), nil
}
