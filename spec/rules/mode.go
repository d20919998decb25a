// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

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
	if affected == 0 {
		affected = allBits
	}
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

// name adds the permissions that an action names.
func (s *step) name(what string) bool {
	for _, p := range what {
		switch p {
		case 'r':
			s.set |= 0o444
		case 'w':
			s.set |= 0o222
		case 'x':
			s.set |= 0o111
		case 'X':
			s.setX |= 0o111
		case 's':
			s.set |= 0o6000
		case 't':
			s.set |= 0o1000
		default:
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
