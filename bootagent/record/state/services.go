// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// servicesFile is below the folder.
const servicesFile = "services.json"

// maxServices caps the file, in bytes.
const maxServices = 4 << 20

// Service holds a node's record of a service. It names images that signed overlays
// have; by itself it proves nothing.
type Service struct {
	Images []string `json:"images,omitempty"` // digests that it was at, the newest first
	Held   string   `json:"held,omitempty"`   // the one that an operator keeps it at
	Reason string   `json:"reason,omitempty"` // why
	Since  int64    `json:"since,omitempty"`  // seconds since 1970
}

// Services returns what is remembered of services, by name. With an error there is an
// empty map all the same.
func (f *Folder) Services() (map[string]Service, error) {
	out := map[string]Service{}
	data, err := ownfiles.ReadFile(f.Path(servicesFile), maxServices)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return map[string]Service{}, fmt.Errorf("read %s: %w", f.Path(servicesFile), err)
	}
	return out, nil
}

// SaveServices replaces what is remembered.
func (f *Folder) SaveServices(all map[string]Service) error {
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return durable.WriteFile(f.Path(servicesFile), append(data, '\n'), 0o600)
}
