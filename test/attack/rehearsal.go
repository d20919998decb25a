// SPDX-License-Identifier: Apache-2.0

package attack

import "time"

// Rehearsal is one row of rehearsal.yaml: what somebody offers as the statement that a change was
// rehearsed. Rows without a check and without a test are controls: they count.
type Rehearsal struct {
	Name  string `yaml:"name"`
	At    string `yaml:"at"`    // package that runs the row
	Check string `yaml:"check"` // of that package, which must refuse it
	Test  string `yaml:"test"`  // of that package, which is the row

	// The statement: what is absent is good, for the change that is asked about.
	By      string        `yaml:"by"`      // role of the key that signed; attestation
	Altered bool          `yaml:"altered"` // one that failed, and says passed since it was signed
	Fleet   string        `yaml:"fleet"`
	From    string        `yaml:"from"`    // letter of the layer before
	Was     string        `yaml:"was"`     // settings before
	Names   string        `yaml:"names"`   // letter of the layer after
	Is      string        `yaml:"is"`      // settings after
	Kind    string        `yaml:"kind"`    // predicate type
	Age     time.Duration `yaml:"age"`     // of the statement, by the date of the plan; less than nothing for a later one
	Rule    string        `yaml:"rule"`    // settings
	Results []string      `yaml:"results"` // of statements, one after the other
}
