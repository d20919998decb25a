// SPDX-License-Identifier: Apache-2.0

// Command fits holds the JSON on its standard input to a schema: fits SCHEMA. It is a
// program of its own because the validator takes 15 ms to start, and scripts start the
// test's own program, as caisson, a thousand times.
package main

import (
	"fmt"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	if err := fits(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fits(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	schema, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", schema); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	value, err := jsonschema.UnmarshalJSON(os.Stdin)
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}
