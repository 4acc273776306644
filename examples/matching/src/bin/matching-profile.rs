//! The service `profile`: who people are, and who is logged in.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: passwords, and the hashes of those that somebody
//! tries. Never: sees a message.

use std::collections::BTreeSet;
use std::process::ExitCode;

use bulkhead_service::{
    Context, Error, Method, Params, RateLimit, Request, Response, Service, Sessions, StatusCode, context,
    url_encode,
};
use matching::{Login, Person, Site, Viewer, failed, notice};

/// LIMIT: 2^10 rounds of bcrypt take about 50 ms, in which this service does nothing else; hence `attempts`.
const ROUNDS: u32 = 10;
const NAME_MAX: usize = 20;
const ABOUT_MAX: usize = 500;
const INTERESTS_MAX: usize = 12;
const INTEREST_MAX: usize = 30;
/// bcrypt looks at no more than 72 bytes.
const PASSWORD: std::ops::RangeInclusive<usize> = 8..=72;

struct Profile {
    site: Site,
    /// They keep nothing but the token by which a form is known.
    forms: Sessions<()>,
    attempts: RateLimit,
    /// With what a password is compared for a name that there is not, so that it takes as long.
    nobody: String,
}

/// What people say of themselves.
struct Said {
    about: String,
    /// As JSON, which is how the statements take a list.
    interests: String,
}

impl Service for Profile {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let (site, forms) = (Site::new(cx)?, cx.sessions("profile-form", "/profile")?);
        let nobody = hash("of nobody").ok_or("there are no random bytes")?;
        Ok(Self { site, forms, attempts: RateLimit::per_minute(60), nobody })
    }

    async fn process(&self, mut request: Request) -> Response {
        let answer = match (request.method().clone(), request.path()) {
            (Method::GET | Method::HEAD, "/profile") => self.own(&request).await,
            (Method::GET | Method::HEAD, _) => self.of_other(&request).await,
            (
                Method::POST,
                "/profile/register" | "/profile/login" | "/profile/change" | "/profile/logout",
            ) => self.take(&mut request).await,
            _ => Ok(Response::status_page(StatusCode::NOT_FOUND)),
        };
        answer.unwrap_or_else(|refusal| refusal)
    }
}

impl Profile {
    /// The viewer's own profile, or the forms by which to get one.
    async fn own(&self, request: &Request) -> Result<Response, Response> {
        let pages = self.site.pages(request);
        let viewer = self.site.viewer(request).await?;
        let person = match &viewer {
            Some(viewer) => self.person(&viewer.name).await?,
            None => None,
        };
        let mut form = self.forms.of(request);
        let token = form.csrf_token()?;
        let page = match person {
            Some(person) => {
                let joined = person.interests.join(", ");
                let about =
                    context! { viewer => person.name, about => person.about, interests => joined, token };
                pages.response("own.html", about)
            }
            None => pages.response("welcome.html", context! { viewer => (), token }),
        };
        Ok(form.save(page)?)
    }

    async fn of_other(&self, request: &Request) -> Result<Response, Response> {
        let Some(name) = request.path_below("/profile/") else {
            return Err(Response::status_page(StatusCode::NOT_FOUND));
        };
        let pages = self.site.pages(request);
        let viewer = self.site.viewer(request).await?;
        let Some(person) = self.person(&name).await? else {
            return Err(notice(
                &pages,
                viewer.as_ref(),
                StatusCode::NOT_FOUND,
                "There is nobody of that name.",
            ));
        };
        let about = context! {
            viewer => viewer.map(|viewer| viewer.name), name => person.name, about => person.about,
            interests => person.interests,
        };
        Ok(pages.response("profile.html", about))
    }

    async fn person(&self, name: &str) -> Result<Option<Person>, Response> {
        self.site.people.one("profile", (name,)).await.map_err(failed)
    }

    /// Takes a form of one of the pages above.
    async fn take(&self, request: &mut Request) -> Result<Response, Response> {
        let form = request.form().await?;
        self.forms.of(request).check(request, &form)?;
        match request.path() {
            "/profile/register" => self.register(request, &form).await,
            "/profile/login" => self.log_in(request, &form).await,
            "/profile/change" => self.change(request, &form).await,
            _ => self.log_out(request).await,
        }
    }

    async fn register(&self, request: &Request, form: &Params) -> Result<Response, Response> {
        self.attempts.check(request)?;
        let refused = |text: &str| notice(&self.site.pages(request), None, StatusCode::BAD_REQUEST, text);
        // Filtered, as names stand in paths; what the filter takes out is no part of a name anyway.
        let name = form.get("name").unwrap_or_default();
        let is_part = |one: char| one.is_ascii_alphanumeric() || one == '-';
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
            return Err(refused("A name has 1 to 20 letters, digits and hyphens."));
        }
        let password = form.raw("password").unwrap_or_default();
        if !PASSWORD.contains(&password.len()) {
            return Err(refused("A password has 8 to 72 bytes."));
        }
        let said = Said::of(form).map_err(refused)?;
        let hash = hash(password).ok_or_else(|| Response::status_page(StatusCode::INTERNAL_SERVER_ERROR))?;
        let (login, response) = Login::make(Response::see_other("/match"))?;
        let call = self.site.people.transaction("register").with((&name, &hash, &said.about));
        let call = call.with((login.as_bytes(), &name)).with((login.as_bytes(), &said.interests));
        match call.run().await {
            Ok(_) => Ok(response),
            Err(error) if error.is_constraint() => Err(refused("Somebody has that name already.")),
            Err(error) => Err(failed(error)),
        }
    }

    async fn log_in(&self, request: &Request, form: &Params) -> Result<Response, Response> {
        let name = form.get("name").unwrap_or_default();
        self.attempts.check(request)?;
        self.attempts.check_key(&name)?;
        let hash: Option<String> = self.site.people.one("password_of", (&name,)).await.map_err(failed)?;
        let password = form.raw("password").unwrap_or_default();
        let is_right = bcrypt::verify(password, hash.as_ref().unwrap_or(&self.nobody)).unwrap_or(false);
        if hash.is_none() || !is_right {
            let text = "The name or the password is wrong.";
            return Err(notice(&self.site.pages(request), None, StatusCode::FORBIDDEN, text));
        }
        let (login, response) = Login::make(Response::see_other("/match"))?;
        self.site.people.exec("add_login", (login.as_bytes(), &name)).await.map_err(failed)?;
        Ok(response)
    }

    async fn change(&self, request: &Request, form: &Params) -> Result<Response, Response> {
        let Viewer { login, name } = self.site.somebody(request).await?;
        let said = Said::of(form)
            .map_err(|text| notice(&self.site.pages(request), None, StatusCode::BAD_REQUEST, text))?;
        let call = self.site.people.transaction("change_profile").with((login.as_bytes(), &said.about));
        let call = call.with((login.as_bytes(),)).with((login.as_bytes(), &said.interests));
        call.run().await.map_err(failed)?;
        Ok(Response::see_other(&format!("/profile/{}", url_encode(&name))))
    }

    async fn log_out(&self, request: &Request) -> Result<Response, Response> {
        if let Some(login) = Login::of(request) {
            self.site.people.exec("remove_login", (login.as_bytes(),)).await.map_err(failed)?;
        }
        Ok(Response::see_other("/"))
    }
}

impl Said {
    /// What a form says; else what is wrong with it. Unfiltered: people may write what they like, and templates escape
    /// it.
    fn of(form: &Params) -> Result<Self, &'static str> {
        let about = form.raw("about").unwrap_or_default().trim();
        if about.chars().count() > ABOUT_MAX {
            return Err("Say it in 500 characters.");
        }
        let words = form.raw("interests").unwrap_or_default().to_lowercase();
        let interests: BTreeSet<&str> =
            words.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty()).collect();
        let are_short = interests.iter().all(|word| word.chars().count() <= INTEREST_MAX);
        if interests.is_empty() || interests.len() > INTERESTS_MAX || !are_short {
            return Err("Name 1 to 12 interests, with commas between them, of at most 30 characters each.");
        }
        Ok(Self { about: about.to_owned(), interests: serde_json::json!(interests).to_string() })
    }
}

/// None if there are no random bytes.
fn hash(password: &str) -> Option<String> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).ok()?;
    Some(bcrypt::hash_with_salt(password, ROUNDS, salt).ok()?.to_string())
}

fn main() -> ExitCode {
    bulkhead_service::main::<Profile>()
}
