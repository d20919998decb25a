// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// spelled reports whether s begins with one of first and goes on with rest only.
func spelled(s, first, rest string) bool {
	return s != "" && strings.IndexByte(first, s[0]) >= 0 && strings.Trim(s[1:], rest) == ""
}

// label reports whether s is one label of a DNS name, in lower case.
func label(s string) bool {
	return len(s) <= 63 && spelled(s, lower+digits, lower+digits+"-") && s[len(s)-1] != '-'
}

// maxNode leaves room in a tag, which has 128 characters.
const maxNode = 120

// Node checks the name of a node. It becomes a host name and a tag, so it is a
// DNS name in lower case.
func Node(name string) error {
	for part := range strings.SplitSeq(name, ".") {
		if !label(part) || len(name) > maxNode {
			return invalid("node-name", "a host name of lower-case letters, digits, hyphens and dots; at most 120 characters, 63 between dots",
				"%.150q is not a node name", name)
		}
	}
	return refuse(strings.HasPrefix(name, "mac-") || strings.HasPrefix(name, "uuid-"), "node-name", "",
		"node name %q begins with mac- or uuid-: overlays are found by such tags", name)
}

// Fleet checks the name of a fleet.
func Fleet(name string) error {
	return refuse(!label(name), "name", "lower-case letters, digits and hyphens; at most 63", "%.150q is not a fleet name", name)
}

// ID checks an author's name for an entry. It becomes a part of a file name.
func ID(id string) error {
	const rest = lower + upper + digits + "_@%+.-"
	return refuse(len(id) > 128 || !spelled(id, strings.ReplaceAll(rest, ".", ""), rest), "id",
		"letters, digits and _ - . + @ %; no leading dot, at most 128", "%.150q cannot be used as a name", id)
}

// ProfileFile checks the name of a file below /etc/apparmor.d: a profile, or what profiles
// include (apparmor.d(5)): local/NAME, and NAME below tunables or abstractions of a file.
func ProfileFile(name string) error {
	parts := strings.Split(name, "/")
	switch n := len(parts); {
	case n == 1, n == 2 && parts[0] == "local",
		n == 3 && (parts[0] == "tunables" || parts[0] == "abstractions") && strings.HasSuffix(parts[1], ".d"):
		for _, part := range parts {
			if err := ID(part); err != nil {
				return err
			}
		}
		return nil
	}
	return invalid("id", "NAME, local/NAME, tunables/OF.d/NAME or abstractions/OF.d/NAME", "%.150q cannot be used as a file of profiles", name)
}

// IsIncluded reports whether a file of profiles is one that others include.
func IsIncluded(name string) bool { return strings.Contains(name, "/") }

// User checks the name of a user or group that a layer is to have. It allows
// what useradd(8) recommends, and dots, which people's names have.
func User(name string) error {
	return refuse(len(name) > 32 || !spelled(name, lower+"_", lower+digits+"_.-"), "user-name",
		"lower-case letters, digits, _ . - and at most 32", "%.50q is not a user or group name", name)
}

// Owner checks the owner or group of a path: a name or a number. Names of
// system accounts may have capitals and a final $.
func Owner(owner string) error {
	if n, err := strconv.ParseUint(owner, 10, 64); err == nil {
		return refuse(n >= 1<<32-1 || len(owner) > 10, "owner", "at most 4294967294", "%q is not a user or group id", owner)
	}
	return refuse(len(owner) > 32 || !spelled(strings.TrimSuffix(owner, "$"), lower+upper+"_", lower+upper+digits+"_.-"), "owner",
		"a name or a number", "%.50q is neither a name nor an id", owner)
}

// Interface checks the name of a network interface: what the kernel takes, in
// printable ASCII and without wildcards, since it is written into files of
// systemd-networkd.
func Interface(name string) error {
	return refuse(len(name) > 15 || name == "." || name == ".." || !printable(name) || strings.ContainsAny(name, "/: *?[]!"), "interface",
		"at most 15 printable characters, without blanks, wildcards, / and :", "%.50q is not the name of an interface", name)
}

// Feature checks the name of an offload feature, as ethtool -k prints it.
func Feature(name string) error {
	return refuse(len(name) > 63 || !spelled(name, lower+digits, lower+digits+"-"), "feature",
		"as ethtool -k prints it, for example generic-receive-offload", "%.80q is not the name of a feature", name)
}

var unitTypes = []string{"service", "target", "mount", "socket", "path", "timer", "slice", "scope", "device", "swap", "automount"}

// Unit checks the name of a unit of systemd.
func Unit(name string) error {
	dot := strings.LastIndexByte(name, '.')
	const chars = lower + upper + digits + `:_.\@-`
	return refuse(dot < 0 || len(name) > 255 || !spelled(name[:dot], chars, chars) || !slices.Contains(unitTypes, name[dot+1:]), "unit",
		"as in docker.service", "%.80q is not the name of a unit", name)
}

// Env checks the name of an environment variable.
func Env(name string) error {
	return refuse(!spelled(name, lower+upper+"_", lower+upper+digits+"_"), "env", "letters, digits and _",
		"%.80q is not the name of an environment variable", name)
}

// printable reports whether s is not empty and all printable ASCII or blanks.
func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// oneLine refuses text that would be more than one line of a file, and what [Hidden] finds.
func oneLine(text string) error {
	return cmp.Or(refuse(strings.ContainsAny(text, "\x00\n\r"), "text", "", "a value must be one line"),
		refuse(hasHidden(text), "text", "", "a value must have no control characters, separators of lines and marks of direction"))
}

// Hidden reports a character that has no place in one line of text: people do not see it, and
// it steers their terminal, breaks the line or turns it around. Those are control characters
// (ESC, BEL, C1), the separators U+2028 and U+2029, and the marks of direction; tabs are
// blanks.
func Hidden(r rune) bool {
	if r < utf8.RuneSelf { // which is nearly all text
		return r < ' ' && r != '\t' || r == '\x7f'
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

func hasHidden(text string) bool { return strings.ContainsFunc(text, Hidden) }
