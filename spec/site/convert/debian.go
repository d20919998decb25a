// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// stanzas calls f for each group of fields, as deb822(5) has them, with the line where it
// begins. Names of fields are in lower case; the first line is the one without a name.
func (r *reading) stanzas(f func(n int, fields map[string]string)) {
	fields, at, last := map[string]string{}, 0, ""
	for n, line := range strings.Split(r.data+"\n\n", "\n") {
		line = strings.TrimRight(line, " \t\r")
		switch text := strings.TrimSpace(line); {
		case line == "":
			if len(fields) > 0 {
				f(at, fields)
			}
			fields = map[string]string{}
		case line[0] == '#':
		case text != line && len(fields) > 0: // it goes on
			fields[last] = strings.TrimPrefix(fields[last]+"\n"+strings.TrimPrefix(text, "."), "\n")
		default:
			key, value, _ := strings.Cut(line, ":")
			if len(fields) == 0 {
				at, fields[""] = n+1, line
			}
			last = anew(fields, strings.ToLower(key))
			fields[last] = strings.TrimSpace(value)
		}
	}
}

// anew returns the name of a field, another one where it was said before.
func anew(fields map[string]string, name string) string {
	for fields[name] != "" {
		name += ", again"
	}
	return name
}

// sourceLine is an entry of sources.list(5) in one line.
var sourceLine = regexp.MustCompile(`^(\S+)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)$`)

// readSources reads sources.list(5), in either of its forms.
func readSources(r *reading) {
	if strings.Contains("\n"+r.data, "\nTypes:") {
		r.stanzas(r.source)
		return
	}
	r.lines("#", func(n int, line string) {
		text, _, _ := strings.Cut(line, " #")
		m := sourceLine.FindStringSubmatch(text)
		if m == nil {
			r.miss(n, line, "it is not a line of sources.list(5)")
			return
		}
		fields := map[string]string{"": line, "types": m[1], "uris": m[3], "suites": m[4], "components": m[5]}
		for _, option := range strings.Fields(m[2]) {
			name, value, _ := strings.Cut(option, "=")
			fields[anew(fields, name)] = value
		}
		r.source(n, fields)
	})
}

// source takes an entry as one repository for each of its addresses.
func (r *reading) source(n int, fields map[string]string) {
	types := strings.Fields(fields["types"])
	if !slices.Contains(types, "deb") || !flag(cmp.Or(fields["enabled"], "yes")) {
		r.miss(n, fields[""], "it is switched off, or has no packages: a layer has no sources of packages")
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
	base := path.Base(r.name)
	id := strings.Trim(notID.ReplaceAllString(strings.TrimSuffix(base, path.Ext(base)), "-"), "-.")
	for _, uri := range strings.Fields(fields["uris"]) {
		value := map[string]any{"url": uri, "distributions": list(strings.Fields(fields["suites"]))}
		if components := strings.Fields(fields["components"]); len(components) > 0 {
			value["components"] = list(components)
		}
		if key != "" {
			value["gpgkey"] = key
		}
		p := r.take(n, fields[""], "apt", "repository "+uri+" "+fields["suites"]+" "+fields["components"], []string{"repositories", id}, value)
		if len(without) > 0 {
			p.Why = "taken without " + strings.Join(without, "; without ")
		}
	}
}

// readPreferences accounts for pins, see apt_preferences(5).
func readPreferences(r *reading) {
	r.stanzas(func(n int, fields map[string]string) {
		why := "a lock says each version: write from: RELEASE, or version:, of the packages that are meant, in conf.apt.packages"
		if strings.HasPrefix(fields["pin-priority"], "-") {
			why = "write conf.apt.blacklistpkgs"
		}
		r.miss(n, "Package: "+fields["package"]+" Pin: "+fields["pin"], why)
	})
}

// answer is a line of debconf-set-selections(1): owner, question, type, value.
var answer = regexp.MustCompile(`^(\S+)\s+(\S+)\s+(\w+)\s*(.*)$`)

// included is the answer that lists the packages to install.
const included = "d-i pkgsel/include string"

// readPreseed reads answers of debconf. A site has them with their package: those of
// packages that the file asks for are taken.
func readPreseed(r *reading) {
	asked := map[string]*parsed{}
	r.lines("#", func(n int, line string) {
		if m := answer.FindStringSubmatch(line); m != nil && strings.Join(m[1:4], " ") == included {
			for _, name := range strings.Fields(m[4]) {
				asked[name] = r.take(n, line, "apt", "package "+name, []string{"packages", appended}, map[string]any{"name": name})
			}
		}
	})
	r.lines("#", func(n int, line string) {
		switch m := answer.FindStringSubmatch(line); {
		case m == nil:
			r.miss(n, line, "it is not an answer: PACKAGE QUESTION TYPE VALUE")
		case strings.Join(m[1:4], " ") == included && m[4] != "":
		case m[1] == "d-i":
			r.miss(n, line, "it is a question of the installer, and nothing is installed")
		case asked[m[1]] == nil:
			r.miss(n, line, "write it as debconf of the package in conf.apt.packages: "+m[1]+" is not in pkgsel/include")
		default:
			p := asked[m[1]]
			value := p.value.(map[string]any)
			answers, _ := value["debconf"].([]any)
			value["debconf"] = append(answers, map[string]any{"question": m[2], "question_type": m[3], "answer": m[4]})
			r.item(n, line).of = p
		}
	})
}
