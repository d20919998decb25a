// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
)

// readPasswd reads the people of passwd(5).
func readPasswd(r *reading) {
	r.Lines("#", func(n int, line string) {
		f := strings.Split(line, ":")
		if len(f) != 7 {
			r.Miss(n, line, "an account has seven fields")
			return
		}
		uid, err := strconv.Atoi(f[2])
		switch {
		case err != nil:
			r.Miss(n, line, "its uid is not a number")
		case (uid < 1000 || uid > 59999) && strings.HasPrefix(f[5], "/home/"):
			r.Miss(n, line, "a site's users have numbers from 1000 to 59999: give it one, and its files by chown --from")
		case uid < 1000 || uid > 59999:
			r.Miss(n, line, "it is an account of the system: packages make those")
		default:
			without := []string{"password, groups and keys: write user_crypt_passwd, user_groups, user_sshkeys"}
			if f[5] != "/home/"+f[0] {
				without = append(without, "its home "+f[5]+": a site makes /home/"+f[0])
			}
			if f[3] != f[2] {
				without = append(without, "its primary group "+f[3]+": a site makes one of its own")
			}
			if f[4] != "" {
				without = append(without, "its comment")
			}
			r.account(n, account{name: f[0], uid: f[2], shell: f[6], keys: []string{"Unmanaged"}, without: without})
		}
	})
}

// readPackages reads what dpkg --get-selections or apt-mark showmanual print.
func readPackages(r *reading) {
	r.Lines("#", func(n int, line string) {
		f := strings.Fields(line)
		name, arch, _ := strings.Cut(f[0], ":")
		switch {
		case arch != "" && rules.Package(f[0]) != nil:
			r.Miss(n, line, rules.Package(f[0]).Error())
			return
		case len(f) > 2:
			r.Miss(n, line, "it is not the name of a package")
			return
		case len(f) == 2 && f[1] != "install" && f[1] != "hold":
			r.Miss(n, line, "it is not installed")
			return
		case len(f) == 2 && f[1] == "hold":
			r.Item(n, line).Take("apt", "hold "+name, []string{"hold", appended}, name)
		}
		r.Item(n, line).Take("apt", "package "+name, []string{"packages", appended}, map[string]any{"name": name})
	})
}

// unitDirectory is where a host has its own units.
const unitDirectory = "/etc/systemd/system/"

// readUnit takes a unit, or a drop-in for one.
func readUnit(r *reading) {
	_, below, found := strings.Cut(r.Name, "systemd/system/")
	if !found {
		below = path.Base(r.Name)
		if dir := path.Base(path.Dir(r.Name)); strings.HasSuffix(dir, ".d") {
			below = dir + "/" + below
		}
	}
	switch to := path.Base(r.Link); {
	case strings.Contains(r.Name, "systemd/user/"):
		r.Whole("it is a unit of sessions, and a site has those of the system")
	case r.Link != "" && r.Link != "/dev/null" && to != below && !strings.Contains(below, "/"):
		r.Whole("it is another name of " + to + ": write Alias= to [Install] of that unit, and its state")
	default:
		r.unitFile(1, file{path: below, content: r.Data})
	}
}

// unitName is one of a unit, masking what an empty file hides: the one of its name that a
// package brings.
var (
	unitName = regexp.MustCompile(`^[^/]+\.(service|socket|timer|mount|automount|path|target|swap|slice)$`)
	masking  = regexp.MustCompile(`(^|/)(systemd/(system|network|user)(/[^/]+\.d)?|` +
		`(sysctl|tmpfiles|modprobe|modules-load|sysusers|rules)\.d)/[^/]+$`)
)

// hides accounts for a file that says nothing, if it hides another.
func (r *reading) hides() bool {
	_, unit, found := strings.Cut(r.Name, "systemd/system/")
	if !found {
		unit = r.Name
	}
	switch {
	case r.Data == "" && unitName.MatchString(unit):
		readUnit(r)
	case masking.MatchString(r.Name):
		r.Whole("it is empty, and hides the file of its name that a package brings: only a unit can be masked")
	default:
		return false
	}
	return true
}

// readModulesLoad reads modules-load.d(5): a module a line.
func readModulesLoad(r *reading) {
	r.Lines("#;", func(n int, line string) {
		if strings.ContainsAny(line, " \t") {
			r.Miss(n, line, "it is not the name of a module")
			return
		}
		r.loaded(n, line, line)
	})
}

// readModprobe reads modprobe.d(5).
func readModprobe(r *reading) {
	r.Lines("#", func(n int, line string) {
		words := strings.Fields(line)
		if len(words) < 2 {
			r.Miss(n, line, "it names no module")
			return
		}
		name := rules.ModuleName(words[1])
		switch words[0] {
		case "blacklist":
			p := r.Item(n, line).Take("modules", "blacklist "+name, []string{"blacklist", appended}, name)
			if len(words) > 2 {
				p.Why = "taken without " + strings.Join(words[2:], " ")
			}
		case "options":
			for _, option := range words[2:] {
				r.moduleOption(n, line, name, option)
			}
			if len(words) == 2 {
				r.Miss(n, line, "it has no options")
			}
		case "install", "remove":
			r.Miss(n, line, "a site has no commands for modules: blacklist keeps one from loading by itself, "+
				"and module_blacklist=NAME in layer.kernel.args from loading at all")
		default:
			r.Miss(n, line, words[0]+" has no counterpart in a site: a file below /etc/modprobe.d in conf.files has it")
		}
	})
}

// written is a line of tmpfiles.d(5) that writes a value below /sys or /proc/sys, with
// nothing that it stands for.
var written = regexp.MustCompile(`^w\+?\s+(/(?:sys|proc/sys)/[^\s%*?["']+)(?:\s+-){4}\s+([^%"'\\]+)$`)

// readTmpfiles reads tmpfiles.d(5): values of the kernel as what they are, a file that says
// anything else as that file.
func readTmpfiles(r *reading) {
	values := map[int][]string{}
	all := true
	r.Lines("#", func(n int, line string) {
		values[n] = written.FindStringSubmatch(line)
		all = all && values[n] != nil
	})
	if !all {
		r.asFile("tmpfiles.d", ".conf")
		return
	}
	r.Lines("#", func(n int, line string) {
		v := values[n]
		if key, isSysctl := strings.CutPrefix(v[1], "/proc/sys/"); isSysctl {
			r.sysctl(n, line, key, v[2], false)
		} else {
			r.sysfs(n, line, v[1], v[2])
		}
	})
}

// asFile takes the whole file as one below /etc. What a package brought comes with it.
func (r *reading) asFile(directory, end string) {
	if strings.Contains(r.Name, "lib/"+directory+"/") {
		r.Whole("a package brings it")
		return
	}
	name := path.Base(r.Name)
	if !strings.HasSuffix(name, end) {
		name += end
	}
	name = path.Join("/etc", directory, name)
	r.entire("#", "files", []string{name}, map[string]any{"content": r.Data})
}

// entire takes all lines of a file, but comments, as one value.
func (r *reading) entire(comments, module string, path []string, value any) {
	var first *coverage.Item
	r.Lines(comments, func(n int, line string) {
		if first == nil {
			first = r.Item(n, line).Take(module, path[len(path)-1], path, value)
			return
		}
		r.Item(n, line).Of = first
	})
}

// readAppArmor takes what a host adds to the profiles of packages, see apparmor.d(5). A line
// with # may be an include.
func readAppArmor(r *reading) {
	name := r.Name
	if _, below, ok := strings.Cut(name, "apparmor.d/"); ok {
		name = below
	}
	if !rules.IsIncluded(name) || path.IsAbs(name) {
		r.Whole("packages bring profiles: write your own to conf.apparmor.profiles")
		return
	}
	r.entire("", "apparmor", []string{"profiles", name}, r.Data)
}

// readSysusers accounts for sysusers.d(5).
func readSysusers(r *reading) {
	r.Lines("#", func(n int, line string) {
		r.Miss(n, line, "accounts of the system come with packages, which have their numbers in the ledger: build a package that brings the file")
	})
}

// sourceLine is an entry of sources.list(5) in one line.
var sourceLine = regexp.MustCompile(`^(\S+)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)$`)

// readSources reads sources.list(5), in either of its forms.
func readSources(r *reading) {
	if strings.Contains("\n"+r.Data, "\nTypes:") {
		r.Stanzas(r.source)
		return
	}
	r.Lines("#", func(n int, line string) {
		text, _, _ := strings.Cut(line, " #")
		m := sourceLine.FindStringSubmatch(text)
		if m == nil {
			r.Miss(n, line, "it is not a line of sources.list(5)")
			return
		}
		fields := map[string]string{"": line, "types": m[1], "uris": m[3], "suites": m[4], "components": m[5]}
		for _, option := range strings.Fields(m[2]) {
			name, value, _ := strings.Cut(option, "=")
			fields[coverage.Anew(fields, name)] = value
		}
		r.source(n, fields)
	})
}

// source takes an entry as one repository for each of its addresses.
func (r *reading) source(n int, fields map[string]string) {
	types := strings.Fields(fields["types"])
	if !slices.Contains(types, "deb") || !flag(cmp.Or(fields["enabled"], "yes")) {
		r.Miss(n, fields[""], "it is switched off, or has no packages: a layer has no sources of packages")
		return
	}
	var without []string
	if len(types) > 1 {
		without = append(without, "sources of packages")
	}
	key := fields["signed-by"]
	if key != "" && !strings.Contains(key, "-----BEGIN") {
		without, key = append(without, "its key "+key+": gpg --armor --export prints it for gpgkey"), ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"", "types", "uris", "suites", "components", "enabled", "signed-by"}, name) {
			without = append(without, name+" "+fields[name])
		}
	}
	base := path.Base(r.Name)
	id := strings.Trim(notID.ReplaceAllString(strings.TrimSuffix(base, path.Ext(base)), "-"), "-.")
	for _, uri := range strings.Fields(fields["uris"]) {
		value := map[string]any{"url": uri, "distributions": list(strings.Fields(fields["suites"]))}
		if components := strings.Fields(fields["components"]); len(components) > 0 {
			value["components"] = list(components)
		}
		if key != "" {
			value["gpgkey"] = key
		}
		p := r.Item(n, fields[""]).Take("apt", "repository "+uri+" "+fields["suites"]+" "+fields["components"], []string{"repositories", id}, value)
		if len(without) > 0 {
			p.Why = "taken without " + strings.Join(without, "; without ")
		}
	}
}

// readPreferences accounts for pins, see apt_preferences(5).
func readPreferences(r *reading) {
	r.Stanzas(func(n int, fields map[string]string) {
		why := "a lock says each version: write from: RELEASE, or version:, of the packages that are meant, in conf.apt.packages"
		if strings.HasPrefix(fields["pin-priority"], "-") {
			why = "write conf.apt.blacklistpkgs"
		}
		r.Miss(n, "Package: "+fields["package"]+" Pin: "+fields["pin"], why)
	})
}

// answer is a line of debconf-set-selections(1): owner, question, type, value.
var answer = regexp.MustCompile(`^(\S+)\s+(\S+)\s+(\w+)\s*(.*)$`)

// included is the answer that lists the packages to install.
const included = "d-i pkgsel/include string"

// readPreseed reads answers of debconf. A site has them with their package: those of
// packages that the file asks for are taken.
func readPreseed(r *reading) {
	asked := map[string]*coverage.Item{}
	r.Lines("#", func(n int, line string) {
		if m := answer.FindStringSubmatch(line); m != nil && strings.Join(m[1:4], " ") == included {
			for _, name := range strings.Fields(m[4]) {
				asked[name] = r.Item(n, line).Take("apt", "package "+name, []string{"packages", appended}, map[string]any{"name": name})
			}
		}
	})
	r.Lines("#", func(n int, line string) {
		switch m := answer.FindStringSubmatch(line); {
		case m == nil:
			r.Miss(n, line, "it is not an answer: PACKAGE QUESTION TYPE VALUE")
		case strings.Join(m[1:4], " ") == included && m[4] != "":
		case m[1] == "d-i":
			r.Miss(n, line, "it is a question of the installer, and nothing is installed")
		case asked[m[1]] == nil:
			r.Miss(n, line, "write it as debconf of the package in conf.apt.packages: "+m[1]+" is not in pkgsel/include")
		default:
			p := asked[m[1]]
			value := p.Value.(map[string]any)
			answers, _ := value["debconf"].([]any)
			value["debconf"] = append(answers, map[string]any{"question": m[2], "question_type": m[3], "answer": m[4]})
			r.Item(n, line).Of = p
		}
	})
}
