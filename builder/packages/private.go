// SPDX-License-Identifier: Apache-2.0

// Private keys in a tree are found by their content: PEM (RFC 7468) with OpenSSH's, OpenPGP
// (RFC 9580), gpg-agent's, age(1), PuTTY's and Kerberos keytabs. Passwords are not, nor keys that
// are any bytes, such as Dropbear's; those that packages make are in package perhost.

package packages

import (
	"bytes"
	"encoding/binary"
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

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/plain"
)

// mostPrivate is how much of a file is read: no key lies further in one.
const mostPrivate = 1 << 20

// FindPrivate describes each file of r's upper tree that holds a private key: by its path, the key of
// the map, and the package that it is of. One that a package has and all users may read is no
// secret: it is for tests.
func FindPrivate(r *root.Root) (map[string]string, error) {
	found := map[string]fs.FileMode{}
	buffer := make([]byte, mostPrivate)
	err := filepath.WalkDir(r.Upper, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		holds, err := lookPrivate(name, buffer)
		if err != nil || !holds {
			return err
		}
		info, err := e.Info()
		if err == nil {
			found[strings.TrimPrefix(name, r.Upper)] = info.Mode()
		}
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	packages, err := owners(r)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, mode := range found {
		of := packages[name]
		if len(of) == 0 {
			out[name] = "made by a script" + beside(packages, name)
		} else if mode&0o004 == 0 {
			out[name] = "of package " + strings.Join(of, ", ")
		}
	}
	return out, nil
}

func lookPrivate(name string, buffer []byte) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close() // only read
	n, err := io.ReadFull(f, buffer)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return false, err
	}
	return holds(buffer[:n]), nil
}

// owners are the packages of each path, by dpkg's lists. /usr was merged after they were written.
func owners(r *root.Root) (map[string][]string, error) {
	const info = "/var/lib/dpkg/info"
	names, err := r.ReadDir(info)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, name := range names {
		of, ok := strings.CutSuffix(name, ".list")
		if !ok {
			continue
		}
		list, err := r.ReadFile(path.Join(info, name))
		if err != nil {
			return nil, err
		}
		of, _, _ = strings.Cut(of, ":")
		for line := range strings.Lines(string(list)) {
			at, err := r.Literal(strings.TrimSpace(line))
			if err != nil {
				return nil, err
			}
			all[at] = append(all[at], of)
		}
	}
	return all, nil
}

// beside names the packages whose directory a file lies in, where few have it.
func beside(owners map[string][]string, name string) string {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if of := owners[dir]; len(of) > 3 {
			break
		} else if len(of) > 0 {
			return fmt.Sprintf(", in a directory of package %s", strings.Join(of, ", "))
		}
	}
	return ""
}

// DescribePrivate lists what was found, but for what may stay.
func DescribePrivate(found map[string]string, stay []string) []string {
	return plain.Pick(slices.Sorted(maps.Keys(found)), func(name string) (string, bool) {
		return name + " (" + found[name] + ")", !slices.Contains(stay, name)
	})
}

var (
	// marks are of every text that text matches: they are found faster.
	marks = [][]byte{[]byte("PRIVATE KEY"), []byte("AGE-SECRET-KEY-"), []byte("private-key"), []byte("PuTTY-User-Key-File-")}

	// text has a key in it, and not only the words that programs look for. Of PEM there are
	// headers and the first of base64, also where JSON has the lines in one.
	text = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----[ \t]*(\r?\n|\\n)` +
		`([ \t]*([A-Za-z-]+: [^\n\\]*)?(\r?\n|\\n))*[ \t]*[A-Za-z0-9+/]{32}` +
		`|AGE-SECRET-KEY-(PQ-)?1[0-9A-Z]{58}|(?m:^Key: \((protected-)?private-key\b)|\A\(\d+:(protected-)?private-key|\APuTTY-User-Key-File-\d: `)
)

// holds reports whether the beginning of a file has a private key in it.
func holds(data []byte) bool {
	return slices.ContainsFunc(marks, func(m []byte) bool { return bytes.Contains(data, m) }) && text.Match(data) ||
		keytab(data) || keyring(data)
}

// keytab is the file format 0x502 of MIT Kerberos: entries, each after its length, with a number
// of components.
func keytab(data []byte) bool {
	if len(data) < 8 || data[0] != 5 || data[1] != 2 {
		return false
	}
	size, components := int32(binary.BigEndian.Uint32(data[2:])), binary.BigEndian.Uint16(data[6:])
	return size > 0 && int(size) <= len(data)-6 && components > 0 && components < 16
}

// keyring begins with a packet of a secret key, RFC 9580 4.2 and 5.5.3: version, time, algorithm.
func keyring(data []byte) bool {
	if len(data) < 16 {
		return false
	}
	at, length := 0, 0
	switch tag := data[0]; {
	case tag == 0x95:
		at, length = 3, int(binary.BigEndian.Uint16(data[1:]))
	case tag == 0x94, tag == 0xc5 && data[1] < 192:
		at, length = 2, int(data[1])
	case tag == 0xc5 && data[1] < 224:
		at, length = 3, int(data[1]-192)<<8+int(data[2])+192
	default:
		return false
	}
	version, algorithm := data[at], data[at+5]
	return length > 16 && at+length <= len(data) && version >= 4 && version <= 6 &&
		bytes.IndexByte([]byte{1, 2, 3, 16, 17, 18, 19, 22, 25, 26, 27, 28}, algorithm) >= 0
}
