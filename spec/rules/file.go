// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/spec"
)

// MaxFile caps one file, in bytes: it travels in the node's overlay.
const MaxFile = 256 << 10

// File checks a small file below /etc. Its mode is octal and sets permissions only:
// a program that runs as another user belongs into the layer.
func File(x spec.File) error {
	f := file(x)
	f.add("path", replaces(x.Path))
	return f.err()
}

// OwnFile checks a file that caisson writes by itself for what a site wants of another kind.
func OwnFile(x spec.File) error {
	f := file(x)
	return f.err()
}

func file(x spec.File) (f fields) {
	f.add("path", refuse(!strings.HasPrefix(x.Path, "/etc/") || Path(x.Path) != nil, "path", "", "%.150q is not a clean path below /etc",
		x.Path))
	f.add("content", refuse(len(x.Content) > MaxFile, "too-large", "keep it in a package", "a file must be at most %d KiB", MaxFile>>10))
	f.add("content", refuse(strings.Contains(x.Content, "\x00") || !utf8.ValidString(x.Content), "text", "keep it in a package",
		"the content is not text"))
	if x.Secret != "" {
		f.add("secret", Secret(x.Secret))
		f.add("secret", refuse(x.Content != "", "contradiction", "keep one of the two", "the file has content and a secret"))
	}
	mode, err := ParseMode(x.Mode)
	f.add("mode", err)
	f.add("mode", refuse(mode.Symbolic() || mode.Apply(0, false) > 0o777, "mode", "as in 0640",
		"mode %q is not octal, or sets more than permissions", x.Mode))
	f.given("owner", x.Owner, Owner)
	f.given("group", x.Group, Owner)
	return f
}

// Path checks a path on the wire: absolute, clean, without control characters.
func Path(p string) error {
	return refuse(AuthoredPath(p) != nil || path.Clean(p) != p, "path", "", "%.150q is not an absolute, clean path", p)
}

// AuthoredPath checks a path as it is written: absolute and without "..".
// path.Clean makes a path on the wire of it.
func AuthoredPath(p string) error {
	up := slices.Contains(strings.Split(p, "/"), "..")
	return refuse(up || !path.IsAbs(p) || strings.ContainsFunc(p, func(r rune) bool { return r == '\t' || Hidden(r) }), "path", "",
		"%.150q is not an absolute path without ..", p)
}

// Pattern checks a path that may have the wildcards of path.Match.
func Pattern(p string) error {
	if err := Path(p); err != nil {
		return err
	}
	_, err := path.Match(p, "")
	return refuse(err != nil, "path", "", "%.150q is not a pattern", p)
}

// caissons are places of caisson's own, with all that lies below them: state, programs,
// units and their drop-ins, and what the agent writes beside the files of others. No kind
// has anything there, whatever it does with it.
var caissons = []string{
	"/dev/caisson", "/etc/caisson", "/run/caisson", "/run/nextroot", "/usr/bin/caisson-agent", "/usr/lib/caisson", "/var/lib/caisson",
	"/etc/systemd/system/caisson-*", "/run/systemd/system/caisson-*", "/usr/lib/systemd/system/caisson-*",
	"/usr/local/lib/systemd/system/caisson-*",
	"/etc/systemd/system/*/caisson-*", "/etc/systemd/system/*/60-caisson-*", "/etc/systemd/system.conf.d/60-caisson-*",
	"/etc/systemd/network/*-caisson-*",
	"/etc/security/limits.d/60-caisson-*", "/etc/modprobe.d/*-caisson-*", "/etc/modules-load.d/*-caisson-*",
}

// databases are files of accounts: programs of the node write them, and so does the agent.
// Owner and mode of them may be kept, and nothing put in their place.
var databases = []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock"}

// shared are directories of the layer and of the running system: what takes their place
// would hide the system. What lies below them may be a site's.
var shared = []string{"/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/proc", "/sys", "/run", "/var", "/var/lib",
	"/usr/bin", "/usr/lib", "/usr/sbin", "/etc/systemd/system"}

// others are directories of the layer, of the kernel and of the running system, with all
// that lies below them: what is kept or put there would be hidden, lost or another's.
var others = []string{"/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr",
	"/var/run", "/var/lock", "/var/tmp", "/var/lib/dpkg"}

// aliases are links of the system, and where they lead.
var aliases = [][2]string{{"/var/run", "/run"}, {"/bin", "/usr/bin"}, {"/sbin", "/usr/sbin"}, {"/lib", "/usr/lib"}}

// canonical is a clean path without the system's links.
func canonical(p string) string {
	for _, a := range aliases {
		if Within(p, a[0]) {
			return a[1] + p[len(a[0]):]
		}
	}
	return p
}

// Reserved says that a clean path is caisson's own.
func Reserved(p string) error {
	parts := strings.Split(canonical(p), "/")
	for _, own := range caissons {
		n := strings.Count(own, "/") + 1
		if len(parts) < n {
			continue
		}
		if ok, err := path.Match(own, strings.Join(parts[:n], "/")); ok && err == nil {
			return invalid("reserved", "", "%s is caisson's own", p)
		}
	}
	return nil
}

// aboveReserved reports whether something of caisson's own lies below a clean path.
func aboveReserved(p string) bool {
	p = canonical(p)
	return slices.ContainsFunc(caissons, func(own string) bool { return p != own && Within(own, p) })
}

// replaces says whose a clean path is, where nothing may be put in its place.
func replaces(p string) error {
	return cmp.Or(refuse(slices.Contains(databases, p), "reserved", "users and groups are written as uamlite",
		"%s is a file of accounts, which programs of the node write", p), Reserved(p))
}

// Hides says whose a clean path is, where nothing may be mounted on it or kept for it.
func Hides(p string) error {
	if slices.Contains(shared, p) || slices.Contains(shared, canonical(p)) {
		hint := ""
		if p == "/proc" {
			hint = "a unit that remounts it sets hidepid=, see docs/from/debian.md"
		}
		return invalid("dangerous", hint, "a mount on %s would hide the system", p)
	}
	return replaces(p)
}

// Persist checks a directory that is kept on the state disk.
func Persist(p string) error {
	within := func(dir string) bool { return Within(canonical(p), dir) }
	return cmp.Or(Path(p),
		refuse(p == "/var", "dangerous", "name directories below it, such as /var/log",
			"/var holds parts of the layer, such as dpkg's state"),
		refuse(Hides(p) != nil || slices.ContainsFunc([]string{"/dev", "/proc", "/run", "/sys", "/usr"}, within), "dangerous",
			"name directories below it", "%s belongs to the layer or to the running system and cannot be kept", p))
}

// Mode is a file mode: all twelve bits, or steps from the mode that a file has,
// as in chmod(1). The zero Mode changes nothing.
type Mode struct {
	text  string
	steps []step
}

// step is one action of a symbolic mode; an octal mode is one step too.
type step struct {
	op       byte // + - =
	affected uint32
	set      uint32 // bits it names
	setX     uint32 // and those where the file is a directory or executable
	from     byte   // the class u, g or o that it copies, or 0
}

const allBits = 0o7777

var classes = map[byte]uint32{'u': 0o4700, 'g': 0o2070, 'o': 0o1007, 'a': allBits}

// ParseMode reads an octal mode of three or four digits, after a 0 if there is
// one, or chmod(1)'s symbolic form: "u=rwx,go=rx", "+X", "g=u". Where no class is
// named all are meant; there is no umask. A mode that gives another result when
// it is applied a second time is refused, because nodes apply it whenever they
// find a difference. "" is the zero Mode.
func ParseMode(text string) (Mode, error) {
	bad := func(why string) (Mode, error) {
		return Mode{}, invalid("mode", "as in 0640, 4755 or u=rw,g=r,o=", "%.80q is not a mode%s", text, why)
	}
	if text == "" {
		return Mode{}, nil
	}
	if strings.Trim(text, digits) == "" {
		n, err := strconv.ParseUint(text, 8, 32)
		if err != nil || n > allBits || len(text) < 3 || len(text) > 5 {
			return bad(": three or four octal digits")
		}
		return Mode{text: fmt.Sprintf("%04o", n), steps: []step{{op: '=', affected: allBits, set: uint32(n)}}}, nil
	}
	m := Mode{text: text}
	if len(text) > 80 {
		return bad(": it is too long")
	}
	for clause := range strings.SplitSeq(text, ",") {
		steps, ok := symbolic(clause)
		if !ok {
			return bad("")
		}
		m.steps = append(m.steps, steps...)
	}
	for mode := range uint32(allBits + 1) {
		for _, dir := range []bool{false, true} {
			if once := m.Apply(mode, dir); m.Apply(once, dir) != once {
				return bad(": applied twice, it gives another result")
			}
		}
	}
	return m, nil
}

// symbolic reads one clause: classes, then one or more actions.
func symbolic(clause string) (steps []step, ok bool) {
	actions := strings.TrimLeft(clause, "ugoa")
	affected := uint32(0)
	for _, class := range []byte(clause[:len(clause)-len(actions)]) {
		affected |= classes[class]
	}
	affected = cmp.Or(affected, allBits)
	for actions != "" {
		s := step{op: actions[0], affected: affected}
		if !strings.ContainsRune("+-=", rune(s.op)) {
			return nil, false
		}
		what := actions[1:]
		if end := strings.IndexAny(what, "+-="); end >= 0 {
			what = what[:end]
		}
		actions = actions[1+len(what):]
		if len(what) == 1 && strings.Contains("ugo", what) {
			s.from = what[0]
		} else if !s.name(what) {
			return nil, false
		}
		steps = append(steps, s)
	}
	return steps, len(steps) > 0
}

var permissions = map[rune]step{'r': {set: 0o444}, 'w': {set: 0o222}, 'x': {set: 0o111}, 'X': {setX: 0o111},
	's': {set: 0o6000}, 't': {set: 0o1000}}

// name adds the permissions that an action names.
func (s *step) name(what string) bool {
	for _, p := range what {
		one, known := permissions[p]
		if s.set, s.setX = s.set|one.set, s.setX|one.setX; !known {
			return false
		}
	}
	return true
}

// Apply returns the mode, of twelve bits, of a file that has had mode until now.
func (m Mode) Apply(mode uint32, dir bool) uint32 {
	for _, s := range m.steps {
		bits := s.set
		if dir || mode&0o111 != 0 {
			bits |= s.setX
		}
		if s.from != 0 {
			shift := map[byte]int{'u': 6, 'g': 3, 'o': 0}[s.from]
			bits |= mode >> shift & 7 * 0o111
		}
		bits &= s.affected
		switch s.op {
		case '+':
			mode |= bits
		case '-':
			mode &^= bits
		case '=':
			mode = mode&^s.affected | bits
		}
	}
	return mode
}

// String returns the mode on the wire: four octal digits, or the symbolic form as
// it was written; "" for the zero Mode.
func (m Mode) String() string { return m.text }

// Symbolic reports whether the result depends on the mode that a file has.
func (m Mode) Symbolic() bool { return m.text != "" && strings.Trim(m.text, digits) != "" }

// PermPath checks an entry of perm; its path may be a pattern.
func PermPath(p spec.PermPath) error {
	var f fields
	f.add("path", Pattern(p.Path))
	if !strings.ContainsAny(p.Path, `*?[\`) {
		f.add("path", PermAt(p, p.Path))
	}
	f.given("owner", p.Owner, Owner)
	f.given("group", p.Group, Owner)
	_, err := ParseMode(p.Mode)
	f.add("mode", err)
	return f.err()
}

// PermAt says why an entry of perm cannot be for a path: it is caisson's own, or above that
// and would be given away. Of what a pattern matches such a path is left out.
func PermAt(p spec.PermPath, path string) error {
	if err := Reserved(path); err != nil || !aboveReserved(path) {
		return err
	}
	mode, err := ParseMode(p.Mode)
	if err != nil {
		return nil // said of the mode
	}
	return refuse(!slices.Contains([]string{"", "root", "0"}, p.Owner) || mode.Apply(0o755, true)&0o022 != 0, "reserved",
		"root owns it, and nobody else writes to it", "caisson's own files lie below %s: who may write to it could replace them", path)
}
