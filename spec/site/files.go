// SPDX-License-Identifier: Apache-2.0

package site

import (
	"path"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// File is a file that a site names and that only some verbs open.
type File struct {
	Path string     // of the field, as in layer.base.tar
	Name string     // as the fs.FS given to [Parse] opens it
	At   report.Pos // where it was written
}

// Files returns the files beside the site that it names, without keys and without those
// that have been read already. An absolute name is one of the machine that uses it.
func (s *Site) Files() []File {
	var out []File
	add := func(field string, t shape.Text) {
		if t.Set() && t.S != "" && !path.IsAbs(t.S) {
			out = append(out, File{field, path.Join(s.dir, t.S), t.At})
		}
	}
	base := s.doc.Layer.Base
	add("layer.base.tar", base.Tar)
	if d := base.Debian; d != nil && d.Keyring != "" {
		add("layer.base.debian.keyring", shape.Text{S: d.Keyring, At: base.V.Get("debian").Get("keyring").At})
	}
	for i := range s.services {
		v := &s.services[i]
		if v.Git.AllowedSigners != "" {
			out = append(out, File{v.Name + ".git.allowedSigners", v.Git.AllowedSigners, v.SignersAt()})
		}
	}
	return out
}

// Roles of keys, as below trust.keys.
const (
	Release     = "release"
	Operator    = "operator"
	Attestation = "attestation"
	Epoch       = "epoch"
	Root        = "root"
	Rescue      = "rescue"
)

// KeyFiles returns the public key files of a role, and whether the site names them: else
// they are those that are taken when it does not, and their place is that of the site.
func (s *Site) KeyFiles(role string) (files []File, named bool) {
	d := s.doc.Trust.Keys
	words, names := d.Release, s.trust.Release
	switch role {
	case Operator:
		words, names = d.Operator, s.trust.Operator
	case Attestation:
		words, names = d.Attestation, s.trust.Attestation
	case Epoch:
		words, names = d.Epoch, s.trust.Epoch
	case Root:
		words, names = d.Root, s.trust.Root
	case Rescue:
		words, names = d.Rescue, s.trust.Rescue
	}
	for i, name := range names {
		f := File{"trust.keys." + role, name, s.doc.Metadata.At}
		if words.Set() {
			f.At = words.Each[i]
		}
		files = append(files, f)
	}
	return files, words.Set()
}

// LayerAt is where the site's layer was written.
func (s *Site) LayerAt() report.Pos { return s.doc.Layer.At }
