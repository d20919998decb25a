// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// ReadCAs replaces the files that machine names by their content, once, so that
// nothing later needs the file system.
func (r *Reader) ReadCAs(v *tree.Value) *tree.Value {
	cas := v.Get("cas")
	if cas == nil || cas.Kind != tree.Sequence {
		return v
	}
	out := *cas
	out.List = make([]*tree.Value, len(cas.List))
	for i, e := range cas.List {
		out.List[i] = e
		if e.Kind != tree.Scalar {
			continue
		}
		text := e.Text
		if !strings.Contains(text, "-----BEGIN") {
			text = string(r.Named(Beside(e.At, e.Text), e.At, maxText, ""))
			if text == "" {
				continue
			}
		}
		if err := machine.CertificateProblem(text); err != "" {
			r.Errorf(e.At, "certificate", "", "%s", err)
		}
		read := *e
		read.Text = text
		out.List[i] = &read
	}
	return v.With("cas", &out)
}
