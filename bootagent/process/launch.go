// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// LaunchVerb is the argument with which a service starts this program, before
// the name of the file that Launch reads.
const LaunchVerb = "launch"

// launch holds the content of the file. Arguments and environment may hold secrets, and
// every user can ask systemd for those of a service.
type launch struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`

	Secrets map[string]string `json:"secrets,omitempty"` // names of files
}

// save writes the file for Launch.
func (c Command) save(file string) error {
	data, err := json.Marshal(launch{c.Args, c.Env, c.Dir, c.Secrets})
	if err != nil {
		return err
	}
	return durable.WriteFile(file, data, 0o600)
}

// Launch replaces this process by the program that file describes and removes
// the file. It returns only with an error.
func Launch(file string) error {
	f, err := ownfiles.Open(file)
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	var l launch
	err = json.NewDecoder(f).Decode(&l)
	_ = f.Close()       // it was only read
	_ = os.Remove(file) // the next launch writes its own
	if err != nil || len(l.Args) == 0 {
		return fmt.Errorf("launch %s: not a command: %w", file, err)
	}
	if err := os.Chdir(l.Dir); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	env, err := withSecrets(l.Env, l.Secrets)
	if err != nil {
		return fmt.Errorf("launch %s: %w", l.Args[0], err)
	}
	return fmt.Errorf("launch %s: %w", l.Args[0], syscall.Exec(l.Args[0], l.Args, env))
}
