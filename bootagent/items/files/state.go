// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec/rules"
)

// Kinds of what can stand at a path.
const (
	absent  = "" // nothing
	regular = "file"
	link    = "link"
)

// state describes the present or the wanted content of a path.
type state struct {
	Kind    string   `json:"kind,omitempty"`
	Content string   `json:"content,omitempty"` // of a file
	Target  string   `json:"target,omitempty"`  // of a link
	Mode    uint32   `json:"mode,omitempty"`    // permission bits
	UID     int      `json:"uid,omitempty"`
	GID     int      `json:"gid,omitempty"`
	Missing []string `json:"missing,omitempty"` // directories above that were not there, outermost first
}

// String says briefly what a state is, without a file's content.
func (s state) String() string {
	switch s.Kind {
	case absent:
		return ""
	case link:
		return "link to " + s.Target
	}
	return fmt.Sprintf("%04o %d:%d %s", s.Mode, s.UID, s.GID, digest.Short([]byte(s.Content)))
}

// said is String for what a file of the overlay asks for.
func (s state) said(f Want) string {
	if f.Secret == "" {
		return s.String()
	}
	return fmt.Sprintf("%04o %d:%d secret %s", s.Mode, s.UID, s.GID, f.Secret)
}

// is reports whether two states are the same but for the directories above.
func (s state) is(o state) bool {
	return s.Kind == o.Kind && s.Content == o.Content && s.Target == o.Target && s.Mode == o.Mode && s.UID == o.UID && s.GID == o.GID
}

// wanted returns the state that a file of the overlay asks for. Names of owners
// are those of the root that the item acts on.
func (i *Item) wanted(f Want) (state, error) {
	if f.Absent {
		return state{}, nil
	}
	if f.Link != "" {
		return state{Kind: link, Target: f.Link}, nil
	}
	s := state{Kind: regular, Content: f.Content, Mode: 0o644}
	check := rules.File
	if i.name != Name {
		check = rules.OwnFile
	}
	if err := check(f.File); err != nil {
		return s, err
	}
	if f.Mode != "" {
		mode, err := strconv.ParseUint(f.Mode, 8, 32)
		if err != nil || mode > 0o777 {
			return s, fmt.Errorf("mode %q is not octal, or sets more than permissions", f.Mode)
		}
		s.Mode = uint32(mode)
	}
	var err error
	if s.UID, err = ID(i.etc, "passwd", f.Owner, i.makes); err == nil {
		s.GID, err = ID(i.etc, "group", f.Group, i.makes)
	}
	return s, err
}

// ID looks a name up in passwd(5) or group(5) of a directory; a number stands for itself, and
// an empty name for root.
func ID(etc, database, name string, makes item.Makes) (int, error) {
	if name == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	data, err := os.ReadFile(filepath.Join(etc, database))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[0] == name {
			return strconv.Atoi(fields[2])
		}
	}
	return 0, makes.NoAccount("/etc/"+database, name)
}

// below returns a path relative to /etc.
func below(path string) (string, error) {
	rel, ok := strings.CutPrefix(path, "/etc/")
	if !ok || rel == "" || filepath.Clean(path) != path || strings.ContainsAny(path, "\x00\n") {
		return "", fmt.Errorf("%q is not a clean path below /etc", path)
	}
	return rel, nil
}
