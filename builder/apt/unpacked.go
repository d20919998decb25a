// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/durable"
)

// Unpacked returns the packages of the store without their compression, see deb(5):
// the same content under other digests, for a tree in which they are installed again
// and again. Work is an empty directory.
func (s *Store) Unpacked(ctx context.Context, debs []Deb, work string) ([]Deb, error) {
	plain := make([]Deb, len(debs))
	script := []string{"/bin/sh", "-c", unpack, "sh"}
	var missing []int
	for i, d := range debs {
		if p, ok := s.known(d); ok && s.holds(p) {
			plain[i] = p
			now := time.Now()
			for _, name := range []string{s.unpacked(d), s.control(p), s.Path(p)} {
				_ = os.Chtimes(name, now, now) // a cache that forgets too early is only slow
			}
			continue
		}
		missing = append(missing, i)
		script = append(script, s.Path(d))
	}
	if missing == nil {
		return plain, nil
	}
	if err := root.Isolated(ctx, []string{work}, root.Command{Args: script}); err != nil {
		return nil, fmt.Errorf("unpack packages: %w", ReasonsOf(err))
	}
	for _, i := range missing {
		p, err := s.repack(ctx, debs[i], filepath.Join(work, debs[i].SHA256+".deb"))
		if err != nil {
			return nil, fmt.Errorf("unpack package %s %s: %w", debs[i].Name, debs[i].Version, err)
		}
		plain[i] = p
	}
	return plain, nil
}

// unpack writes the two archives of each package beside each other.
const unpack = `set -e; umask 077; for deb; do
	dpkg-deb --ctrl-tarfile "$deb" >"$TMPDIR/${deb##*/}.control"
	dpkg-deb --fsys-tarfile "$deb" >"$TMPDIR/${deb##*/}.data"
done`

// unpacked is the file that names the package that d became.
func (s *Store) unpacked(d Deb) string { return filepath.Join(s.Dir, d.SHA256+".unpacked") }

func (s *Store) known(d Deb) (Deb, bool) {
	data, err := os.ReadFile(s.unpacked(d))
	if err != nil {
		return d, false
	}
	_, err = fmt.Sscanf(string(data), "%64s %d\n", &d.SHA256, &d.Size)
	return d, err == nil
}

// repack makes a package of the archives at from, and takes it into the store.
func (s *Store) repack(ctx context.Context, d Deb, from string) (Deb, error) {
	sum := sha256.New()
	to := from + ".plain"
	err := durable.Write(to, 0o600, func(w io.Writer) error { return writeDeb(io.MultiWriter(w, sum), from+".control", from+".data") })
	if err != nil {
		return d, err
	}
	info, err := os.Stat(to)
	if err != nil {
		return d, err
	}
	p := d
	p.SHA256, p.Size = fmt.Sprintf("%x", sum.Sum(nil)), info.Size()
	if err := s.accept(ctx, p, to, nil); err != nil {
		return d, err
	}
	return p, durable.WriteFile(s.unpacked(d), fmt.Appendf(nil, "%s %d\n", p.SHA256, p.Size), 0o600)
}

// writeDeb writes a package of two tar archives, see ar(5).
func writeDeb(w io.Writer, control, data string) error {
	if _, err := fmt.Fprintf(w, "!<arch>\n%s2.0\n", member("debian-binary", 4)); err != nil {
		return err
	}
	for _, m := range []struct{ name, file string }{{"control.tar", control}, {"data.tar", data}} {
		f, err := os.Open(m.file)
		if err != nil {
			return err
		}
		defer f.Close() // only read
		var info fs.FileInfo
		if info, err = f.Stat(); err != nil {
			return err
		}
		if _, err := io.WriteString(w, member(m.name, info.Size())); err != nil {
			return err
		}
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		if info.Size()%2 != 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// member is the head of an archive's file.
func member(name string, size int64) string {
	return fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", size)
}
