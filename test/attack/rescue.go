// SPDX-License-Identifier: Apache-2.0

package attack

import "time"

// Rescue is one row of rescue.yaml: how somebody tries to be let into a node by a rescue
// statement. Rows without a check and without a test are controls: they must let in.
type Rescue struct {
	Name  string `yaml:"name"`
	At    string `yaml:"at"`    // package that runs the row
	Check string `yaml:"check"` // of that package, which must stop it
	Also  string `yaml:"also"`  // a check that stops it as well, and is taken away in any case
	Test  string `yaml:"test"`  // of that package, which is the row

	// The statement: what is absent is good, for the node that is asked and the code that it shows.
	Fleet   string `yaml:"fleet"`
	Node    string `yaml:"node"`
	Code    string `yaml:"code"`    // "guessed"; "before", which the node showed until it obeyed one
	By      string `yaml:"by"`      // role of the key that signed; rescue
	Seconds int64  `yaml:"seconds"` // that it is to last; 60
	Opens   string `yaml:"opens"`   // "nothing"

	// What the node has seen before it is asked.
	Obeyed  bool          `yaml:"obeyed"`  // a good statement, a minute after its start, and for a minute
	Same    bool          `yaml:"same"`    // that one is offered again
	Looks   bool          `yaml:"looks"`   // nothing is offered: is what it opened open?
	Guesses int           `yaml:"guesses"` // statements of the rescue key for other codes
	Agent   bool          `yaml:"agent"`   // the agent was started again
	Reboot  bool          `yaml:"reboot"`  // the machine was, and what was in memory is there still
	After   time.Duration `yaml:"after"`   // since then, by the kernel; less than nothing before it
	Back    time.Duration `yaml:"back"`    // how far somebody has set the clock back
}
