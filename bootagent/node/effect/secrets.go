// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"github.com/caisson-os/caisson/bootagent/fetch/recipient"
	"github.com/caisson-os/caisson/spec"
)

// opener returns what opens the secrets of an overlay, nil where this node has no key, and where
// they are opened: "" is the usual place.
func (ef *Effect) opener(o *spec.Overlay) (open func(spec.Secret) ([]byte, error), dir string) {
	dir = ef.Seam(spec.SecretDir)
	if len(o.Secrets) == 0 {
		return nil, dir
	}
	key, err := recipient.Read(ef.Folder.Path())
	switch {
	case err != nil:
		return func(spec.Secret) ([]byte, error) { return nil, err }, dir
	case key == nil:
		return nil, dir
	}
	return key.Open, dir
}
