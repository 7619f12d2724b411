#include "client/cli.h"
int cli_top(const struct cli *cli) { (void)cli; return 1; }
