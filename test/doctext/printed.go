// SPDX-License-Identifier: Apache-2.0

package doctext

import (
	"fmt"
	"os"
	"strings"
)

// Printed compares a part of a page with the text that a package makes of its own tables.
// The part stands between the lines "<!-- name: printed by PACKAGE -->" and
// "<!-- end of name -->". With CAISSON_UPDATE in the environment it is written again.
func Printed(page, name, by, text string) error {
	from, to := fmt.Sprintf("<!-- %s: printed by %s -->\n", name, by), fmt.Sprintf("<!-- end of %s -->\n", name)
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(data), from)
	shown, after, ends := strings.Cut(rest, to)
	switch {
	case !begins || !ends:
		return fmt.Errorf("%s has no lines %q and %q", page, from, to)
	case shown == text:
		return nil
	case os.Getenv("CAISSON_UPDATE") == "":
		return fmt.Errorf("%s shows other %s; CAISSON_UPDATE=1 go test ./%s writes them again", page, name, by)
	}
	return os.WriteFile(page, []byte(before+from+text+to+after), 0o644)
}
