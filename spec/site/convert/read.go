// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec/rules"
)

// readSysctl reads sysctl.d(5).
func readSysctl(r *reading) {
	r.Lines("#;", func(n int, line string) {
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		name, optional := strings.CutPrefix(key, "-")
		switch {
		case !ok && optional:
			r.Miss(n, line, "it excludes a key from a pattern, and patterns are not taken")
		case !ok:
			r.Miss(n, line, "there is no = in it")
		case strings.ContainsAny(name, "*?["):
			r.Miss(n, line, "a site has no patterns: write the keys that it stands for")
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
	r.Item(n, line).Take("sysctl", same, []string{name}, value)
}

// section is one of a file in the form of systemd.syntax(7).
type section struct {
	name  string
	lines []setting
}

type setting struct {
	n                int
	line, key, value string
}

// sections reads such a file. Lines before the first section are in one without a name.
func (r *reading) sections() []section {
	out := []section{{}}
	r.Lines("#;", func(n int, line string) {
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			out = append(out, section{name: strings.Trim(line, "[]")})
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
	r.Lines("#", func(n int, line string) {
		text, _, _ := strings.Cut(line, "#")
		f := strings.Fields(text)
		if len(f) != 4 {
			why := "a limit has four fields"
			if len(f) == 2 && f[1] == "-" {
				why = "an exemption from all limits has no counterpart"
			}
			r.Miss(n, line, why)
			return
		}
		domain := strings.NewReplacer("*", "all", "@", "group-", "%", "max-", ":", "-to-").Replace(f[0])
		kind := strings.Replace(f[1], "-", "both", 1)
		id := strings.Trim(notID.ReplaceAllString(domain+"-"+kind+"-"+f[2], "-"), "-.")
		r.Item(n, line).Take("limits", f[0]+" "+f[1]+" "+f[2], []string{id},
			map[string]any{"domain": f[0], "type": f[1], "item": f[2], "value": f[3]})
	})
}

var fstabEscape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// readFstab reads fstab(5).
func readFstab(r *reading) {
	r.Lines("#", func(n int, line string) {
		f := strings.Fields(line)
		if len(f) < 3 {
			r.Miss(n, line, "a mount has at least three fields")
			return
		}
		device, target, kind := fstabEscape.Replace(f[0]), fstabEscape.Replace(f[1]), f[2]
		var options, left []string
		if len(f) > 3 {
			for _, o := range strings.Split(f[3], ",") {
				switch {
				case o == "noauto":
					r.Miss(n, line, "noauto: it is not mounted at boot")
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
		p := r.Item(n, line).Take("mounts", same, []string{id}, value)
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
	return data, fault.In(err, "read %s", name)
}
