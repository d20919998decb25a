// SPDX-License-Identifier: Apache-2.0

package site

import (
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/document"
)

var (
	export   = regexp.MustCompile(`(?m)^\s*["/]`) // exports(5)
	fileRoot = regexp.MustCompile(`[(,]fsid=(0|root)[,)]|(?m)^\s*vers4\s*=\s*(n|0|f|off)`)
)

// checkExports says where NFS version 4 has no root. A server takes / for it, which is a stack of
// images here: the kernel cannot export that, so clients are told that there is no such directory.
func (s *Site) checkExports(r *document.Reader) {
	if !s.HasLayer() {
		return
	}
	var say func()
	for _, p := range s.parts {
		for _, t := range p.Targets() {
			if p.Off || t.Frag == nil {
				continue
			}
			for _, f := range t.Frag.Items.Files {
				if fileRoot.MatchString(f.Content) {
					return
				}
				if say == nil && exports(f) {
					say = func() {
						r.Within(p.Where(), func() {
							r.Warnf(t.Frag.Owns[f.Path], "no-effect", "export the directory of the others with fsid=0: see docs/storage.md", "%s: nothing has fsid=0, so nothing can be mounted by NFS version 4", f.Path)
						})
					}
				}
			}
		}
	}
	if say != nil {
		say()
	}
}

func exports(f spec.File) bool {
	return (f.Path == "/etc/exports" || strings.HasPrefix(f.Path, "/etc/exports.d/")) && export.MatchString(f.Content)
}
