// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/convert/coverage"
)

// kind is one kind of file: what it is called, what gives it away, how it is read.
type kind struct {
	name  string
	looks func(text string) bool // like one, by what it holds; nil where content cannot tell
	named func(dir, base string) bool
	read  func(*reading)
}

// kinds are tried in this order: those first that begin with a word of their own.
var kinds = []kind{
	{"cloud-config", matches(`\A#cloud-config(\s|\z)`), nil, readCloudConfig},
	{"machineconfig", matches(`(?m)^\s*[{]?\s*"?kind"?:\s*"?MachineConfig"?\s*,?\s*$`), nil, readMachineConfig},
	{"ignition", func(text string) bool { return strings.HasPrefix(text, "{") && strings.Contains(text, `"ignition"`) }, nil, readIgnition},
	{"butane", matches(`(?m)^variant:\s*\w+`), nil, readIgnition},
	{"netplan", matches(`(?m)^(network:(\s|$)|(ethernets|bonds|vlans):\s*$)`, `(?m)\bversion:\s*[12]\b`), under("netplan"), readNetplan},
	{"talos", matches(`(?m)^version:\s*v1alpha1\s*$`, `(?m)^machine:`), nil, readTalos},
	{"tuned", matches(`(?m)^\[main\]`, `(?m)^\[(sysctl|sysfs|bootloader|vm|cpu|modules)\]`), ends("tuned.conf"), readTuned},
	{"sources", matches(`\A(#.*\n|\n)*(Types:\s*deb|deb(-src)?\s+(\[.*\]\s+)?\w+:)`), ends("sources.list"), readSources},
	{"preferences", matches(`(?m)^Package:\s`, `(?m)^Pin:\s`), under("preferences.d"), readPreferences},
	{"preseed", mostly(`^\S+\s+\S+/\S+\s+(string|boolean|(multi)?select|note|password|text|error|title)\b`), nil, readPreseed},
	{"gitopper", looksLikeGitopper, func(_, base string) bool { return strings.HasSuffix(base, ".toml") }, readGitopper},
	{"ethtool", begins("Features for "), func(_, base string) bool { return strings.HasPrefix(base, "ethtool") }, readEthtool},
	{"networkd", matches(`(?m)^\[(Match|NetDev)\]`, `(?m)^\[(Network|NetDev|Address|Route)\]`), ends(".network", ".netdev"), readNetworkd},
	{"link", matches(`(?m)^\[Link\]`), func(_, base string) bool { return strings.HasSuffix(base, ".link") }, readLink},
	{"unit", matches(`\A(\s*([#;].*)?\n)*\[(Unit|Service|Socket|Timer|Path|Mount|Install)\]`), nil, readUnit},
	{"passwd", mostly(`^[^:\s]+:[^:]*:\d+:\d+:[^:]*:/[^:]*:[^:]*$`), nil, readPasswd},
	{"tmpfiles", mostly(`^[a-zA-Z][+!=~^$-]*\s+[/%]\S+(\s+(-|[~:]?[0-7]{3,4})(\s.*)?)?$`),
		under("tmpfiles.d"), readTmpfiles},
	{"udev", mostly(`^[A-Z]+(\{[^}]+\})?\s*[=!]=\s*"`), under("rules.d"), func(r *reading) { r.asFile("udev/rules.d", ".rules") }},
	{"interfaces", matches(`(?m)^iface\s+\S+\s+inet6?\s+\w+\s*$`), under("interfaces.d"), readInterfaces},
	{"apparmor", mostly(`^(((audit|allow|deny|owner)\s+)*(@\{|"?/|(capability|network|signal|ptrace|unix|dbus|file)\b).*,|@\{\w+\}\s*\+?=.*)$`),
		nil, readAppArmor},
	{"fstab", mostly(`^\S+\s+(/\S*|none|swap)\s+[a-z0-9.,]+(\s+\S+(\s+\d(\s+\d)?)?)?$`),
		func(_, base string) bool { return base == "fstab" }, readFstab},
	{"sysctl", mostly(`^-?(abi|crypto|debug|dev|fs|kernel|net|sunrpc|user|vm)[./][^=]*=`),
		func(dir, base string) bool { return dir == "sysctl.d" || base == "sysctl.conf" }, readSysctl},
	{"limits", mostly(`^\S+\s+(soft|hard|-)\s+\w+\s+\S+$`),
		func(dir, base string) bool { return dir == "limits.d" || base == "limits.conf" }, readLimits},
	{"sysusers", mostly(`^[ugmr]!?\s+[\w%-]+(:\w+)?(\s+(-|[\d/"]\S*|\w[\w-]*).*)?$`), under("sysusers.d"), readSysusers},
	{"packages", mostly(`^[a-z0-9][a-z0-9.+-]+(:\w+)?\s+(install|hold|deinstall|purge)$`), nil, readPackages},
	{"modprobe", mostly(`^(blacklist|options|install|remove|alias|softdep)\s+\S`),
		func(dir, base string) bool { return dir == "modprobe.d" || base == "modprobe.conf" }, readModprobe},
	{"modules-load", nil, func(dir, base string) bool {
		return dir == "modules-load.d" || dir == "etc" &&
			base == "modules"
	}, readModulesLoad},
}

// kindOf tells a file by what it holds, else, where somebody named it or content
// cannot tell, by its name.
// Nil: it cannot be told.
func kindOf(f File) *kind {
	text := strings.TrimSpace(string(f.Data))
	base, dir := path.Base(f.Name), path.Base(path.Dir(f.Name))
	for i, k := range kinds {
		if k.looks != nil && k.looks(text) {
			return &kinds[i]
		}
	}
	for i, k := range kinds {
		if (!f.Found || k.looks == nil) && k.named != nil && k.named(dir, base) {
			return &kinds[i]
		}
	}
	return nil
}

// kindNamed returns the kind of that name, or nil.
func kindNamed(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i]
		}
	}
	return nil
}

// matches reports whether each of several patterns is found. They are compiled then: most
// verbs never import a file.
func matches(patterns ...string) func(string) bool {
	return func(text string) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(text) })
	}
}

func under(directory string) func(dir, base string) bool {
	return func(dir, _ string) bool { return dir == directory }
}

func ends(names ...string) func(dir, base string) bool {
	return func(_, base string) bool {
		return slices.ContainsFunc(names, func(end string) bool { return strings.HasSuffix(base, end) })
	}
}

func begins(word string) func(string) bool {
	return func(text string) bool { return strings.HasPrefix(text, word) }
}

// mostly reports whether more than half of the lines that say something have a form.
func mostly(pattern string) func(string) bool {
	return func(text string) bool {
		form := regexp.MustCompile(pattern)
		fits, all := 0, 0
		r := coverage.Reading{Data: text}
		r.Lines("#;", func(_ int, line string) {
			before, _, _ := strings.Cut(line, " #")
			all++
			if form.MatchString(strings.TrimSpace(before)) {
				fits++
			}
		})
		return 2*fits > all
	}
}

// empty reports whether a file says nothing: blank lines and comments alone.
func empty(data []byte) bool {
	n := 0
	r := coverage.Reading{Data: string(data)}
	r.Lines("#;", func(int, string) { n++ })
	return n == 0
}
